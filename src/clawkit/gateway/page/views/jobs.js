// Jobs: what runs when, what became of it, and what it said.

import { JobForm, Times } from '../job_form.js';
import { Markdown } from '../markdown.js';
import {
  announce, Badge, Button, compact, Confirm, Empty, Exact, Field, gateway, html, link, money, Notice, oneLine, Select,
  Time, useCall, useState, View,
} from '../parts.js';

const PAGE = 50;
const EVENTS = ['cron'];
/** What is shown of an answer without asking. */
const MAX_SHOWN = 600;
const ENABLED = [['all', 'All'], ['enabled', 'Enabled'], ['disabled', 'Disabled']];
const KINDS = { systemEvent: 'event', command: 'command', script: 'script', heartbeat: 'heartbeat' };
const STATES = {
  ok: ['good', 'ok'],
  error: ['bad', 'failed'],
  interrupted: ['bad', 'interrupted'],
  running: ['warn', 'running'],
  queued: ['', 'waiting'],
  skipped: ['', 'skipped'],
};
const WHY = {
  schedule: 'by its schedule',
  'catch-up': 'late: its time was missed',
  retry: 'again after a failure',
  manual: 'by hand',
  event: 'for an event',
};
const DELIVERY = {
  delivered: 'The answer was delivered.',
  'not-delivered': 'The answer was not delivered',
  unknown: 'Whether the answer was delivered is not known yet.',
};
/** Why a time was skipped. */
const SKIPPED = { missed: 'No one ran jobs at that time.', backoff: 'It waited after a failure.' };
const NOT_RUN = { 'already-running': 'It is running already.' };
const TARGETS = {
  main: 'the main session', isolated: 'a new session for every run', current: 'the session that made it',
};

/** Without where the counting of an interval began. */
const brief = (words = '') => oneLine(words).replace(/ from \S+Z$/, '');
const titleOf = (job) => oneLine(job.displayName || job.name);
const mayChange = () => gateway.may('admin');

export default function Jobs({ path: [id, action] }) {
  const isEdit = action === 'edit' && mayChange();
  if (id === 'new' && mayChange()) return html`<${JobForm} key="new" />`;
  if (id && id !== 'new') return html`<${OneJob} key=${id} id=${id} isEdit=${isEdit} />`;
  return html`<${List} />`;
}

const ReadOnly = () => !mayChange() && html`
  <${Notice}>You can look at jobs, but not change them: this browser has no scope <code>operator.admin</code>.<//>`;

function List() {
  const [query, setQuery] = useState('');
  const [enabled, setEnabled] = useState('all');
  const [offset, setOffset] = useState(0);
  const { data, error } = useCall('cron.list', { query, enabled, offset, limit: PAGE }, EVENTS);
  const status = useCall('cron.status', {}, EVENTS).data;
  const pick = (set) => (value) => { set(value); setOffset(0); };
  const create = () => { location.hash = link('jobs', 'new'); };
  return html`
    <${View} title="Jobs" actions=${mayChange() && html`<${Button} kind="primary" onClick=${create}>New job<//>`}>
      <${ReadOnly} />
      ${status?.enabled === false && html`<${Notice} kind="warn">Jobs are not run: they are disabled in the
        configuration (<code>cron.enabled</code>) or by the environment.<//>`}
      <div class="picks">
        <${Field} label="Search names" type="search" value=${query} onInput=${pick(setQuery)} />
        <${Select} label="Show" options=${ENABLED} value=${enabled} onInput=${pick(setEnabled)} />
      </div>
      <${Notice} error=${error} />
      ${data?.jobs.length ? html`
        <ul class="tree">${data.jobs.map((job) => html`
          <li key=${job.id}><${Row} job=${job} words=${data.schedules[job.id]} /></li>`)}</ul>`
        : html`<${Empty} data=${error ? [] : data}>
          ${query || enabled !== 'all' ? 'No job matches.' : 'There are no jobs.'}<//>`}
      <${Pages} data=${data} onMove=${setOffset} />
    <//>`;
}

function Pages({ data, onMove }) {
  if (!data || (!data.hasMore && !data.offset)) return null;
  const { offset, limit, total } = data;
  return html`
    <div class="row" role="group" aria-label="Pages">
      <${Button} disabled=${!offset} onClick=${() => onMove(Math.max(0, offset - limit))}>Previous<//>
      <span role="status">${offset + 1} to ${Math.min(offset + limit, total)} of ${total}</span>
      <${Button} disabled=${!data.hasMore} onClick=${() => onMove(offset + limit)}>Next<//>
    </div>`;
}

function Row({ job, words }) {
  return html`
    <div class="card session">
      <div class="grow">
        <a href=${link('jobs', job.id)}><strong>${titleOf(job)}</strong></a> <${Marks} job=${job} />
        <div class="hint">${brief(words)} · <${When} job=${job} /></div>
        <${LastError} job=${job} />
      </div>
      <div class="row"><${Actions} job=${job} /></div>
    </div>`;
}

function Marks({ job }) {
  const { consecutiveErrors: failures = 0, runningAtMs } = job.state;
  const times = job.lastRunStatus === 'error' && failures > 1 && !runningAtMs && ` ${failures} times in a row`;
  const [kind, text] = STATES[runningAtMs ? 'running' : job.lastRunStatus] ?? [];
  return html`
    ${KINDS[job.payload.kind] && html`<${Badge}>${KINDS[job.payload.kind]}<//> `}
    ${!job.enabled && html`<${Badge} kind=${job.state.autoDisabled ? 'bad' : ''}>disabled<//> `}
    ${text && html`<${Badge} kind=${kind}>${text}${times}<//>`}`;
}

function When({ job }) {
  const next = job.state.nextRunAtMs;
  return html`
    ${next ? html`next <${Time} at=${next} />` : 'no next run'}
    ${job.lastRunAtMs ? html` · last <${Time} at=${job.lastRunAtMs} />` : ' · has not run yet'}`;
}

function LastError({ job }) {
  const { autoDisabled: why } = job.state;
  return html`
    ${why && html`<div class="bad">Disabled automatically: ${oneLine(why)}</div>`}
    ${job.lastRunError && html`<div class="bad failure">${oneLine(job.lastRunError).slice(0, MAX_SHOWN)}</div>`}`;
}

/** What can be done with a job. Heartbeats are settings, and changed there. */
function Actions({ job }) {
  if (!mayChange() || job.payload.kind === 'heartbeat') return null;
  const name = titleOf(job);
  const enable = () => gateway.call('cron.update', { id: job.id, patch: { enabled: !job.enabled } });
  const run = async () => {
    const { ran, reason, note } = await gateway.call('cron.run', { id: job.id });
    if (!ran || note) throw new Error(note ?? NOT_RUN[reason] ?? `It was not run: ${reason}.`);
    announce(`${name} runs now.`);
  };
  return html`
    <${Button} label="Run now: ${name}" onClick=${run}>Run now<//>
    <${Button} kind="switch" role="switch" aria-checked=${String(job.enabled)} label="Enabled: ${name}"
      onClick=${enable} />`;
}

function OneJob({ id, isEdit }) {
  const { data: job, error, reload } = useCall('cron.get', { id }, EVENTS);
  const { data: about, reload: describe } = useCall('cron.describe', { id }, EVENTS);
  const reread = () => Promise.all([reload(), describe()]);
  const isHeartbeat = job?.payload.kind === 'heartbeat';
  const edit = () => { location.hash = link('jobs', id, 'edit'); };
  const remove = async () => {
    await gateway.call('cron.remove', { id });
    location.hash = link('jobs');
  };
  if (isEdit && job && about && !isHeartbeat) {
    return html`<${JobForm} job=${job} words=${about.text} onSaved=${reread} />`;
  }
  const actions = job && mayChange() && !isHeartbeat && html`
    <${Actions} job=${job} />
    <${Button} onClick=${edit}>Edit<//>
    <${Confirm} kind="danger" question="Remove the job ${titleOf(job)}?" action="Remove" onClick=${remove}>Remove<//>`;
  return html`
    <${View} title=${job ? titleOf(job) : 'Job'} actions=${actions}>
      <p><a href=${link('jobs')}>All jobs</a></p>
      <${ReadOnly} />
      <${Notice} error=${error} />
      ${isHeartbeat && html`<${Notice}>This is the heartbeat of an agent. It follows from the settings of
        the agent: <a href=${link('config', 'agents')}>change it there</a>.<//>`}
      ${job?.state.autoDisabled && html`<${Notice} kind="bad">clawkit disabled this job:
        ${` ${oneLine(job.state.autoDisabled)}`}. Enable it when the cause is fixed.<//>`}
      ${job ? html`<${Facts} job=${job} about=${about} /><${History} id=${job.id} />`
        : html`<${Empty} data=${error ? [] : null} />`}
    <//>`;
}

function Facts({ job, about }) {
  const { payload, delivery, state } = job;
  const said = payload.message ?? payload.text;
  const program = payload.script ?? (payload.argv && JSON.stringify(payload.argv));
  return html`
    <section class="card" aria-label="The job">
      <div class="row"><${Marks} job=${job} /></div>
      <dl class="facts">
        ${job.description && html`<dt>Description</dt><dd>${job.description}</dd>`}
        <dt>When</dt><dd>${brief(about?.text)}</dd>
        <dt>Next run</dt><dd>${state.nextRunAtMs ? html`<${Time} at=${state.nextRunAtMs} />` : 'none'}</dd>
        ${job.enabled && about?.next.length > 1 && html`<dt>Next times</dt><dd><${Times} times=${about.next} /></dd>`}
        ${said && html`<dt>${payload.message ? 'Message' : 'Text'}</dt><dd class="plain">${said}</dd>`}
        ${program && html`<dt>${payload.script ? 'Script' : 'Command'}</dt><dd><${Exact} text=${program} /></dd>`}
        ${job.grants && html`<dt>Allowed</dt><dd><${Exact} text=${job.grants.join('\n')} /></dd>`}
        <dt>Agent</dt><dd>${job.agentId || 'the default one'}</dd>
        ${!program && html`<dt>Session</dt><dd>${TARGETS[job.sessionTarget] ?? job.sessionTarget}</dd>`}
        ${payload.model && html`<dt>Model</dt><dd><code>${payload.model}</code></dd>`}
        ${payload.toolsAllow && html`<dt>Tools</dt><dd>${payload.toolsAllow.join(', ') || 'none'}</dd>`}
        <dt>Delivery</dt><dd>${delivery.mode === 'none' ? 'none: answers are in the history'
          : `${delivery.mode} ${delivery.to ?? ''}`}</dd>
        ${state.consecutiveErrors > 0 && html`<dt>Failures</dt><dd>${state.consecutiveErrors} in a row</dd>`}
        ${job.lastRunError && html`<dt>Last error</dt><dd class="bad plain">${job.lastRunError}</dd>`}
      </dl>
    </section>`;
}

function History({ id }) {
  const [offset, setOffset] = useState(0);
  const { data, error } = useCall('cron.runs', { id, offset, limit: PAGE }, EVENTS);
  return html`
    <section aria-label="History"><h2>History</h2>
      <${Notice} error=${error} />
      ${data?.entries.length ? html`<ol class="tree">${data.entries.map((run) => html`
        <li key=${run.runId}><${Run} run=${run} /></li>`)}</ol>`
        : html`<${Empty} data=${error ? [] : data}>It has not run yet.<//>`}
      <${Pages} data=${data} onMove=${setOffset} />
    </section>`;
}

function Run({ run }) {
  const [kind, text] = STATES[run.state] ?? ['', run.state];
  const figures = [
    WHY[run.why],
    run.slots > 1 && `${run.slots} times`,
    run.durationMs && `${(run.durationMs / 1000).toFixed(1)} s`,
    run.model,
    run.usage && `${compact(run.usage.total_tokens)} tokens`,
    run.usage && money(run.cost ?? 0),
  ].filter(Boolean);
  return html`
    <div class="card run">
      <div class="row"><${Badge} kind=${kind}>${text}<//> <${Time} at=${run.runAtMs} />
        <span class="hint">${oneLine(figures.join(' · '))}</span>
        ${run.sessionKey && html`<a href=${link('chat', run.sessionKey)}>Session</a>`}</div>
      ${run.state === 'skipped' && run.errorReason && html`
        <p class="hint">${SKIPPED[run.errorReason] ?? oneLine(run.errorReason)}</p>`}
      ${run.error && html`<p class="bad plain">${run.error}</p>`}
      ${run.retryAtMs && html`<p>It is tried again <${Time} at=${run.retryAtMs} />.</p>`}
      ${run.summary && html`<${Said} text=${run.summary} />`}
      <${Delivered} run=${run} />
    </div>`;
}

function Said({ text }) {
  if (text.length <= MAX_SHOWN) return html`<${Markdown} text=${text} />`;
  return html`
    <details><summary>${oneLine(text.slice(0, MAX_SHOWN / 5))}…</summary><${Markdown} text=${text} /></details>`;
}

function Delivered({ run }) {
  if (run.deliverySuppressionReason === 'silent') return html`<p class="hint">It had nothing to report.</p>`;
  const words = DELIVERY[run.deliveryStatus];
  if (!words) return null;
  if (run.deliveryStatus !== 'not-delivered') return html`<p class="hint">${words}</p>`;
  return html`<p class="bad">${words}: ${run.deliveryError ?? ''}</p>`;
}
