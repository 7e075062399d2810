// The logs: every summary, every job, every nightly report; and what is due.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Reply, Schema } from '../../lib/api.ts';
import { post, useAction, useGet } from '../../lib/api.ts';
import { bytes, day, duration, label, plural, moment, number, period as periodName } from '../../lib/format.ts';
import { useLive } from '../../lib/live.ts';
import { go, href } from '../../lib/route.ts';
import { Markdown } from '../../ui/markdown.tsx';
import { Button, Dialog, EmptyState, ErrorBox, Section, RequestView, Table, Tag, showToast } from '../../ui/components.tsx';

type Run = Reply<'/api/runs'>['runs'][number];
type RollupResult = Schema['RollupReport'];
const PAGE = 50;

function runKey(run: Run): string {
  return `${run.period} ${run.version} ${run.ts}`;
}

/** The result of a rollup. */
export function RollupOutcome({ rollup }: { rollup: RollupResult }): JSX.Element {
  return (
    <div class="outcome" role="status">
      {rollup.silent !== undefined && <p class="warm">The model does not answer: {rollup.silent}. <a href={href(['health'])}>Check it</a>.</p>}
      {rollup.pressed.length === 0 && rollup.deferred.length === 0 && rollup.flagged.length === 0 && <p>Nothing was due.</p>}
      {rollup.pressed.length > 0 && <><h3>{plural(rollup.pressed.length, 'summary', 'summaries')} written</h3><ul>{rollup.pressed.map((one) => <li key={one.period}><a href={href(['core', one.period])}>{periodName(one.period)}</a>, {bytes(one.bytes_in)} to {bytes(one.bytes_out)}, by {one.made_by}{one.provisional && ' (provisional)'}</li>)}</ul></>}
      {rollup.flagged.length > 0 && <><h3>Refused</h3><ul>{rollup.flagged.map((one) => <li key={one.period}><a href={href(['runs', 'review'], { review: one.period })}>{periodName(one.period)}</a>: {one.why}</li>)}</ul></>}
      {rollup.deferred.length > 0 && <><h3>Deferred</h3><ul>{rollup.deferred.map((one) => <li key={one.period}>{periodName(one.period)}: {one.why}</li>)}</ul></>}
    </div>
  );
}

/** Summarizes one period again, whether it is due or not. */
function SummarizeAgain({ period }: { period: string }): JSX.Element {
  const [rollup, setRollup] = useState<RollupResult>();
  const summarizing = useAction(async () => setRollup((await post('/api/rollup', { body: { period } })).rolled));
  return (
    <>
      {summarizing.failure && <ErrorBox failure={summarizing.failure} />}
      {rollup ? (rollup.pressed.length + rollup.flagged.length + rollup.deferred.length === 0 ? <p role="status">Nothing to do: its sources have not changed.</p> : <RollupOutcome rollup={rollup} />) : <p><Button busy={summarizing.busy} onClick={() => void summarizing.run()}>Summarize again</Button></p>}
    </>
  );
}

function RunDialog({ run, onClose }: { run: Run; onClose: () => void }): JSX.Element {
  const node = useGet('/api/core/{period}', { path: { period: run.period } });
  const needsReview = node.value?.flagged === true;
  return (
    <Dialog title={periodName(run.period)} open onClose={onClose}>
      <dl class="pairs">
        <div><dt>When</dt><dd>{moment(run.ts)}</dd></div>
        <div><dt>By</dt><dd>{run.refused ? 'a model; its drafts were refused' : run.made_by}</dd></div>
        <div><dt>Model calls</dt><dd>{run.attempts === 0 ? 'none' : number(run.attempts)}</dd></div>
        <div><dt>Size</dt><dd>{bytes(run.bytes_in)} to {bytes(run.bytes_out)}, {run.ratio < 1 && run.ratio > 0 ? `${(1 / run.ratio).toFixed(1)}× longer` : `${run.ratio.toFixed(1)}× shorter`}</dd></div>
        <div><dt>Tokens</dt><dd>{number(run.tokens_in)} sent, {number(run.tokens_out)} received</dd></div>
        <div><dt>Time</dt><dd>{duration(run.millis)}</dd></div>
        {!run.refused && <div><dt>Version</dt><dd>{number(run.version)}{node.value && node.value.version !== run.version && `, current version ${number(node.value.version)}`}</dd></div>}
      </dl>
      {needsReview && <p class="warm">Its draft needs review: <a href={href(['runs', 'review'], { review: run.period })}>open it</a>.</p>}
      <RequestView of={node} what="Loading the summary">
        {(value) => (
          <>
            <h3>Summary</h3>
            <Markdown lower={3} text={value.lines.map((line) => line.text).join('\n')} />
            {value.left_out.length > 0 && <p class="dim small">Left out: {value.left_out.map((one) => `${one.what} (${one.why})`).join(', ')}</p>}
            <p><a href={href(['core', run.period])}>Open it in the core</a></p>
          </>
        )}
      </RequestView>
      <SummarizeAgain period={run.period} />
    </Dialog>
  );
}

export function SummaryLog({ chosen }: { chosen: string | undefined }): JSX.Element {
  const [limit, setLimit] = useState(PAGE);
  const runs = useGet('/api/runs', { query: { limit } });
  useLive(['runs', 'summaries', 'reviews'], runs.reload);
  return (
    <Section title="Summaries">
      <RequestView of={runs}>
        {(value) => {
          if (value.runs.length === 0) return <EmptyState title="No summaries yet."><p>As soon as there are conversations, <a href={href(['runs', 'due'])}>summarize what is due</a>, or let <code>icecore daemon</code> do it every night.</p></EmptyState>;
          const shown = value.runs.find((run) => runKey(run) === chosen);
          return (
            <>
              <Table caption="All summaries, the newest first; Enter shows more" rows={value.runs} id={runKey} current={chosen} onOpen={(run) => go(['runs', 'log'], { run: runKey(run) }, true)} columns={[
                { title: 'When', cell: (run) => moment(run.ts) },
                { title: 'Period', cell: (run) => <>{periodName(run.period)}{run.refused && <> <Tag kind="warm">refused</Tag></>}</> },
                { title: 'By', cell: (run) => run.refused ? 'a model' : run.made_by },
                { title: 'Calls', cell: (run) => number(run.attempts), figures: true },
                { title: 'From', cell: (run) => bytes(run.bytes_in), figures: true },
                { title: 'To', cell: (run) => bytes(run.bytes_out), figures: true },
                { title: 'Compression', cell: (run) => `${run.ratio.toFixed(1)}×`, figures: true },
                { title: 'Tokens', cell: (run) => number(run.tokens_in + run.tokens_out), figures: true },
                { title: 'Time', cell: (run) => duration(run.millis), figures: true },
              ]} />
              {value.runs.length >= limit && <p class="showmore"><Button busy={runs.busy} onClick={() => setLimit(limit + 4 * PAGE)}>Show more</Button></p>}
              {shown && <RunDialog run={shown} onClose={() => go(['runs', 'log'], {}, true)} />}
            </>
          );
        }}
      </RequestView>
    </Section>
  );
}

function NightlyReport({ date, onClose }: { date: string; onClose: () => void }): JSX.Element {
  const report = useGet('/api/reports/{date}', { path: { date } });
  return <Dialog title={`Nightly report of ${day(date)}`} open onClose={onClose}><RequestView of={report}>{(value) => <Markdown lower={2} text={value.text} />}</RequestView></Dialog>;
}

export function JobsAndReports({ reportDate }: { reportDate: string | undefined }): JSX.Element {
  const [limit, setLimit] = useState(PAGE);
  const jobs = useGet('/api/jobs/log', { query: { limit } });
  const reports = useGet('/api/reports', {});
  useLive(['runs', 'logs'], () => {
    jobs.reload();
    reports.reload();
  });
  return (
    <div class="cards">
      <Section title="Nightly reports">
        <RequestView of={reports}>
          {(value) => value.reports.length === 0
            ? <p class="dim">No nightly job has run yet. <code>icecore consolidate</code> runs it now, <code>icecore daemon</code> every night.</p>
            : <ul class="rows">{value.reports.slice(0, 60).map((one) => <li key={one.date}><a class="row" href={href(['runs', 'log'], { night: one.date })}>{day(one.date)} <span class="dim small">{bytes(one.bytes)}, {one.path}</span></a></li>)}</ul>}
        </RequestView>
        {reportDate !== undefined && <NightlyReport date={reportDate} onClose={() => go(['runs', 'log'], {}, true)} />}
      </Section>
      <Section title="Jobs">
        <RequestView of={jobs}>
          {(value) => value.jobs.length === 0 ? <p class="dim">No job has run yet. <a href={href(['health'])}>The schedule</a> shows when each one runs.</p> : (
            <>
              <Table caption="Past jobs, the newest first" rows={value.jobs} id={(job) => `${job.ts} ${job.job} ${job.date}`} columns={[
                { title: 'When', cell: (job) => moment(job.ts) },
                { title: 'Job', cell: (job) => label(job.job) },
                { title: 'For', cell: (job) => day(job.date) },
              ]} />
              {value.jobs.length >= limit && <p class="showmore"><Button busy={jobs.busy} onClick={() => setLimit(limit + PAGE)}>Show more</Button></p>}
            </>
          )}
        </RequestView>
      </Section>
    </div>
  );
}

/** What is due, and the buttons that run it. */
export function Due(): JSX.Element {
  const outlook = useGet('/api/rollup', {});
  const [rollup, setRollup] = useState<RollupResult>();
  const [report, setReport] = useState<string>();
  const running = useAction(async (job: 'rollup' | 'consolidate') => {
    const ran = await post('/api/jobs/run', { body: { job } });
    setRollup(ran.rolled);
    setReport(ran.consolidated?.report);
    showToast(job === 'rollup' ? 'Due summaries are written' : 'The nightly job has finished');
    outlook.reload();
  });
  useLive(['runs', 'summaries', 'messages'], outlook.reload);
  return (
    <div class="cards">
      <Section title="To summarize">
        <RequestView of={outlook}>
          {(value) => (
            <>
              {value.due.length === 0 && value.waiting.length === 0 && <p class="dim">Nothing is due. A session is summarized once it has been inactive for a while.</p>}
              {value.due.length > 0 && <ul class="rows">{value.due.map((one) => <li key={one.period}><a class="row" href={href(['core', one.period])}>{periodName(one.period)} <span class="dim small">{one.why}, {plural(one.messages, 'message')}</span></a></li>)}</ul>}
              {value.waiting.length > 0 && <><h3>Waiting</h3><ul class="waitinglist">{value.waiting.map((one) => <li key={one.period}>{periodName(one.period)}: {one.why}</li>)}</ul></>}
            </>
          )}
        </RequestView>
        <div class="doing">
          <Button kind="main" busy={running.busy} onClick={() => void running.run('rollup')}>{running.busy ? 'Running…' : 'Summarize what is due'}</Button>
          <Button busy={running.busy} onClick={() => void running.run('consolidate')}>Run the nightly job now</Button>
        </div>
        <p class="dim small">With a configured model, this uses tokens, within the daily limit. On the command line: <code>icecore rollup due</code>, <code>icecore consolidate</code>.</p>
        {running.failure && <ErrorBox failure={running.failure} />}
      </Section>
      {rollup && <Section title="Result"><RollupOutcome rollup={rollup} />{report !== undefined && <p>Its report is in {report}; <a href={href(['runs', 'log'])}>all nightly reports</a>.</p>}</Section>}
    </div>
  );
}
