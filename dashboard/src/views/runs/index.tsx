// Runs: usage of the summarizer and its cost, drafts to review, the logs, and what is due.
import type { JSX } from 'preact';
import { useGet } from '../../lib/api.ts';
import { useTitle } from '../../lib/hooks.ts';
import { useLive } from '../../lib/live.ts';
import { go } from '../../lib/route.ts';
import type { Route } from '../../lib/route.ts';
import { RequestView, Tabs } from '../../ui/components.tsx';
import type { View } from '../view.ts';
import { Usage, parseRange } from './usage.tsx';
import { Due, JobsAndReports, SummaryLog } from './log.tsx';
import { Reviews } from './review.tsx';
import './runs.css';

const TABS = ['figures', 'review', 'log', 'due'] as const;
type Tab = (typeof TABS)[number];

function Page({ route }: { route: Route }): JSX.Element {
  const chosen = route.query.get('review') ?? undefined;
  const tab: Tab = chosen !== undefined ? 'review' : TABS.find((one) => one === route.rest[0]) ?? 'figures';
  const reviews = useGet('/api/reviews', {});
  useTitle('Runs');
  useLive(['reviews', 'summaries', 'runs'], reviews.reload);
  const waiting = reviews.value?.reviews.length ?? 0;
  return (
    <>
      <div class="viewhead"><h1>Runs</h1><p class="dim">How summaries are written: their size and cost, drafts to review, and what is due.</p></div>
      <Tabs label="Parts of this view" current={tab} onChange={(one) => go(one === 'figures' ? ['runs'] : ['runs', one])}
        tabs={[['figures', 'Usage'], ['review', waiting === 0 ? 'Review' : `Review (${waiting})`], ['log', 'Log'], ['due', 'Due']]}>
        {tab === 'figures' && <Usage shown={parseRange(route.query.get('range'))} onRange={(one) => go(['runs'], { range: one }, true)} />}
        {tab === 'review' && <RequestView of={reviews}>{(value) => <Reviews reviews={value.reviews} chosen={chosen} onSettled={reviews.reload} />}</RequestView>}
        {tab === 'log' && <div class="runspage"><SummaryLog chosen={route.query.get('run') ?? undefined} /><JobsAndReports reportDate={route.query.get('night') ?? undefined} /></div>}
        {tab === 'due' && <Due />}
      </Tabs>
    </>
  );
}

export const runs: View = {
  id: 'runs',
  title: 'Runs',
  key: 'r',
  icon: 'M4 20V4M4 20h16M8 16v-4M12 16V7M16 16v-6M20 16v-2',
  Page,
};
