// The integrity of the vault: the last result, verification on demand, and lossless repair.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { Reply, Schema } from '../../lib/api.ts';
import { post, useAction } from '../../lib/api.ts';
import { bytes, plural, moment } from '../../lib/format.ts';
import { Button, ErrorBox, Section, Tag, showToast } from '../../ui/components.tsx';
import { Command, Problem } from './problems.tsx';

type Health = Reply<'/api/health'>;
type Verdict = Reply<'/api/verify', 'post'>;
type Finding = Schema['Finding'];

const CHECK_LABELS: Record<string, string> = {
  valid_lines: 'Every line of the ledger is an event',
  unique_ids: 'No id is used twice',
  sequential_ids: 'The ids of a day have no gaps',
  supersedes: 'Superseded events exist, and are older',
  related: 'Related events exist',
  unchanged: 'No line is missing or changed',
  index: 'The index agrees with the files',
  open_loops: 'The list of open commitments agrees with the ledger',
  checkpoint: 'The checkpoint agrees with the ledger',
  coverage: 'Every message is covered by the summaries',
  files: 'No leftover files of a sync or merge',
};

export function Findings({ findings }: { findings: readonly Finding[] }): JSX.Element {
  return (
    <ul class="problems">
      {findings.map((one, at) => <Problem key={at} text={`${one.fails ? '' : 'Notice: '}${one.what}${one.line === undefined || one.what.toLowerCase().includes(`line ${one.line}`) ? '' : ` (line ${one.line})`}${one.id === undefined || one.what.includes(one.id) ? '' : ` (${one.id})`}`} />)}
    </ul>
  );
}

function VerdictView({ verdict }: { verdict: Verdict }): JSX.Element {
  return (
    <div class="checked" role="status">
      <p>{verdict.ok ? 'No damage' : 'Damage found'}: {plural(verdict.events, 'event')}, {bytes(verdict.bytes)}, {moment(verdict.checked_at)}.</p>
      <ul class="checks">
        {verdict.checks.map(({ check, ok }) => <li key={check} class={ok ? 'ok' : 'no'}><span aria-hidden="true">{ok ? '✓' : '✗'}</span><span class="unseen">{ok ? 'passed: ' : 'failed: '}</span>{CHECK_LABELS[check] ?? check}</li>)}
      </ul>
      {verdict.findings.length > 0 && <Findings findings={verdict.findings} />}
      {verdict.mended.length > 0 && <><h3>Repaired during the check</h3><ul>{verdict.mended.map((one) => <li key={one}>{one}</li>)}</ul></>}
      {verdict.noticed.taken.length > 0 && <p>{plural(verdict.noticed.taken.length, 'statement')} from edited files imported into the ledger.</p>}
      {verdict.noticed.complaints.length > 0 && <ul class="problems">{verdict.noticed.complaints.map((one) => <Problem key={one} text={one} />)}</ul>}
    </div>
  );
}

export function Integrity({ health, onChecked }: { health: Health; onChecked: () => void }): JSX.Element {
  const [verdict, setVerdict] = useState<Verdict>();
  const [repairs, setRepairs] = useState<readonly string[]>();
  const verifying = useAction(async () => {
    setRepairs(undefined);
    setVerdict(await post('/api/verify', { body: {} }));
    onChecked();
  });
  const doctoring = useAction(async (fix: boolean) => {
    const report = await post('/api/doctor', { body: { fix } });
    setVerdict('verdict' in report ? report.verdict : report);
    setRepairs('done' in report ? report.done : undefined);
    if (fix) showToast('Repair finished');
    onChecked();
  });
  const { integrity } = health;
  const busy = verifying.busy || doctoring.busy;
  return (
    <Section title="Integrity" aside={<Tag kind={integrity.state === 'failing' ? 'warm' : integrity.state === 'whole' ? 'ice' : 'plain'}>{{ whole: 'intact', failing: 'damaged', unknown: 'not verified yet' }[integrity.state]}</Tag>}>
      {integrity.at === undefined
        ? <p>Not verified yet. Verify it now; after that the nightly job does it.</p>
        : <p>{integrity.state === 'failing' ? `${plural(integrity.failures ?? 0, 'check')} failed` : 'Intact'} when last verified, {moment(integrity.at)}.</p>}
      <div class="doing">
        <Button kind={integrity.state === 'unknown' ? 'main' : 'plain'} busy={busy} onClick={() => void verifying.run()}>Verify now</Button>
        <Button busy={busy} onClick={() => void doctoring.run(false)}>Diagnose</Button>
        {(integrity.state === 'failing' || verdict?.ok === false) && <Button kind="main" busy={busy} onClick={() => void doctoring.run(true)}>Repair</Button>}
      </div>
      <p class="dim small">Repairing loses nothing: damaged lines are quarantined, missing ones restored from a snapshot. <Command text="icecore doctor --fix" /></p>
      {verifying.failure && <ErrorBox failure={verifying.failure} />}
      {doctoring.failure && <ErrorBox failure={doctoring.failure} />}
      {repairs && (repairs.length === 0 ? <p role="status">Nothing to repair.</p> : <><h3>Repaired</h3><ul>{repairs.map((one) => <li key={one}>{one}</li>)}</ul></>)}
      {verdict && <VerdictView verdict={verdict} />}
      {health.hooks.length > 0 && (
        <>
          <h3>Failed hooks</h3>
          <ul class="problems">{health.hooks.slice(0, 20).map((one, at) => <Problem key={at} text={`${moment(one.ts)}, ${one.event}: ${one.what}`} />)}</ul>
        </>
      )}
    </Section>
  );
}
