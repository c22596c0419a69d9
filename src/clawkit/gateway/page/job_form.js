// A form for a job. What it has no field for is JSON.

import {
  announce, Button, Field, gateway, html, link, Notice, Select, useCall, useEffect, useState, View,
} from './parts.js';

/** Phrases without a zone are meant by the clock of whoever types them. */
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const PAUSE_MS = 250;
const DATE = new Intl.DateTimeFormat(undefined, {
  ...{ weekday: 'short', day: 'numeric', month: 'short', year: 'numeric' },
  ...{ hour: 'numeric', minute: '2-digit', timeZoneName: 'short' },
});
const WHEN = 'Such as “every weekday at 9:00”, “in 20 minutes”, or a cron expression. What is due at a full hour '
  + 'can start up to five minutes later, unless you add “exactly”.';
const BY_TIME = ['at', 'every', 'cron'];
const MORE = [
  'description', 'displayName', 'wakeMode', 'deleteAfterRun', 'overlap', 'retryInterrupted', 'failureAlert', 'pacing',
];
const KINDS = [['agentTurn', 'An agent answers a message'], ['systemEvent', 'The main session reads a text']];
const MODES = [
  ['none', 'Keep them in the history'],
  ['announce', 'Put them into a session'],
  ['webhook', 'Send them to a web address'],
];
/** What is usual; what is said in the main session has been read there. */
const MODE_OF = { agentTurn: 'announce', systemEvent: 'none' };
/** Parts that can be changed in part, and what tells their kinds apart. */
const MERGED = { payload: 'kind', delivery: 'mode' };
/** Which field an error of the gateway is about, by its words; the first that fits. */
const PLACES = [
  ['more', /JSON|unexpected property/], ['tools', /toolsAllow/], ['model', /payload\.model/], ['session', /sessionTarget/],
  ['to', /delivery/], ['phrase', /schedule/], ['text', /payload/], ['name', /\bname\b/],
];

/** What was typed and not saved, by job. */
const drafts = gateway.remember();

/** @param {{job?: any, words?: string, onSaved?: () => Promise<any>}} props */
export function JobForm({ job = null, words = '', onSaved }) {
  const id = job?.id ?? 'new';
  const [{ base, phrase }] = useState(() => drafts.get(id) ?? { base: job, phrase: words });
  const [form, setForm] = useState(() => drafts.get(id)?.form ?? toForm(job, words));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const agents = useCall('agents.list').data?.agents ?? [];
  const models = useCall('models.list', { ...(form.agent && { agentId: form.agent }), view: 'all' }).data?.models ?? [];
  const sessions = useCall('sessions.list', { limit: 50 }).data?.sessions ?? [];
  // Where the first error is, so that it is seen, and read aloud.
  useEffect(() => { if (error) document.querySelector('.job [aria-invalid]')?.focus(); }, [error]);
  const change = (fields) => {
    setError(null);
    const next = { ...form, ...fields };
    setForm(next);
    drafts.set(id, { base, phrase, form: next });
  };
  const leave = (to) => {
    drafts.delete(id);
    location.hash = to;
  };
  const save = async () => {
    try {
      const id = await store(base, form, phrase);
      await onSaved?.();
      leave(link('jobs', id));
    } catch (problem) {
      setError(problem);
      announce(problem.message);
    }
  };
  const isTurn = form.kind === 'agentTurn';
  const isOwn = isTurn && form.target === 'isolated';
  const shown = [
    'name', 'phrase', 'more', form.kind !== 'json' && 'text', isTurn && 'session', isOwn && 'model', isOwn && 'tools',
    form.mode !== 'none' && 'to',
  ];
  const place = error && PLACES.find(([name, words]) => words.test(error.message) && shown.includes(name))?.[0];
  const at = (name, label, hint = null) => ({
    label,
    value: form[name],
    onInput: (value) => change({ [name]: value }),
    'aria-invalid': place === name ? 'true' : null,
    hint: place === name ? html`<span class="bad" role="alert">${error.message}</span>` : hint,
  });
  const kinds = form.kind === 'json' ? [...KINDS, ['json', 'Something else, see below']] : KINDS;
  const targets = [['isolated', 'A new session for every run'], ['session', 'A session of your choice']];
  if (base?.sessionKey) targets.push(['current', 'The session that made it']);
  return html`
    <${View} title=${base ? 'Edit job' : 'New job'}>
      <form class="job" onSubmit=${(event) => event.preventDefault()}>
        <${Field} ...${at('phrase', 'When', WHEN)}
          autocomplete="off" autofocus=${!base} />
        ${place !== 'phrase' && html`<${Preview} phrase=${form.phrase} job=${form.phrase === phrase && base} />`}
        <${Select} ...${at('kind', 'What')} options=${kinds}
          onInput=${(kind) => change({ kind, ...(form.mode !== 'webhook' && { mode: MODE_OF[kind] }) })} />
        ${form.kind !== 'json' && html`
          <${Field} as="textarea" rows="4" ...${at('text', isTurn ? 'Message' : 'Text')} />`}
        <${Field} ...${at('name', 'Name', 'If empty, the beginning of the message.')} maxlength="200" />
        <div class="picks">
          <${Select} ...${at('agent', 'Agent')}
            options=${[['', 'The default one'], ...agents.map((each) => [each.id, each.id])]} />
          ${isTurn && html`
            <${Select} ...${at('target', 'Where')} options=${targets} />
            ${form.target === 'session' && html`<${Field} ...${at('session', 'Session')} list="job-sessions" />`}`}
          ${isOwn && html`
            <${Field} ...${at('model', 'Model')} list="job-models" placeholder="that of the agent" />
            <${Field} ...${at('tools', 'Tools', 'Separated by commas, or “none”.')} placeholder="all of the agent" />`}
        </div>
        <div class="picks">
          <${Select} ...${at('mode', 'Answers')} options=${MODES} />
          ${form.mode === 'announce' && html`
            <${Field} ...${at('to', 'To the session')} list="job-sessions" placeholder="the main one" />`}
          ${form.mode === 'webhook' && html`<${Field} ...${at('to', 'To the address')} placeholder="https://…" />`}
        </div>
        ${base?.grants && html`<${Notice} kind="warn">Saving a change ends what this job may run without asking. To allow it
          again, add <code>${JSON.stringify({ grants: base.grants })}</code> below.<//>`}
        <details open=${place === 'more' || form.kind === 'json'}><summary>Advanced</summary>
          <${Field} as="textarea" class="mono" rows="8" spellcheck=${false} ...${at('more', 'More fields, as JSON',
            'Those of the tool cron, such as {"overlap": true, "payload": {"timeoutSeconds": 60}}.')} />
        </details>
        ${!place && html`<${Notice} error=${error} />`}
        <p class="row end">
          <${Button} onClick=${() => leave(link('jobs', ...(base ? [base.id] : [])))}>Cancel<//>
          <${Button} kind="primary" type="submit" onClick=${save}>Save<//></p>
        <datalist id="job-models">${models.map((each) => html`
          <option value="${each.provider}/${each.id}" />`)}</datalist>
        <datalist id="job-sessions">${sessions.map((each) => html`<option value=${each.key} />`)}</datalist>
      </form>
    <//>`;
}

/** What the gateway makes of a phrase; of one that was not changed, what the job has. */
function Preview({ phrase, job }) {
  const [asked, setAsked] = useState(phrase);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(phrase), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [phrase]);
  const given = job ? { id: job.id } : { schedule: asked, tz: ZONE };
  const { data, error } = useCall(asked.trim() ? 'cron.describe' : null, given);
  return html`
    <div class="preview" role="status">${asked.trim() && (error
      ? html`<span class="bad">${error.message}</span>`
      : data && html`<strong>${data.text}</strong><${Times} times=${data.next} />`)}</div>`;
}

/** @param {{times: number[]}} props */
export const Times = ({ times }) => html`
  <ol class="times">${times.map((at) => html`
    <li key=${at}><time datetime=${new Date(at).toISOString()}>${DATE.format(at)}</time></li>`)}</ol>`;

const without = (fields, names) => Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name)));

function toForm(job, words) {
  const { sessionTarget = 'isolated', schedule } = job ?? {};
  const { payload = { kind: 'agentTurn' }, delivery = { mode: 'announce' } } = job ?? {};
  const isKnown = KINDS.some(([kind]) => kind === payload.kind);
  const isSession = sessionTarget.startsWith('session:');
  const isByTime = !schedule || BY_TIME.includes(schedule.kind);
  const more = Object.fromEntries(MORE.filter((name) => job?.[name] !== undefined).map((name) => [name, job[name]]));
  const parts = {
    payload: isKnown ? without(payload, ['kind', 'message', 'text', 'model', 'toolsAllow']) : payload,
    delivery: without(delivery, ['mode', 'to']),
    schedule: isByTime ? {} : schedule,
  };
  for (const [name, part] of Object.entries(parts)) if (Object.keys(part).length) more[name] = part;
  return {
    name: job?.name ?? '',
    phrase: isByTime ? words : '',
    kind: isKnown ? payload.kind : 'json',
    text: payload.message ?? payload.text ?? '',
    agent: job?.agentId ?? '',
    target: isSession ? 'session' : sessionTarget,
    session: isSession ? sessionTarget.slice('session:'.length) : '',
    model: payload.model ?? '',
    tools: payload.toolsAllow ? payload.toolsAllow.join(', ') || 'none' : '',
    mode: delivery.mode,
    to: delivery.to ?? '',
    more: Object.keys(more).length ? JSON.stringify(more, null, 2) : '',
  };
}

/** The job that a form stands for; fields that are left out are undefined. */
function toJob(form) {
  const more = form.more.trim() ? JSON.parse(form.more) : {};
  const tools = form.tools.split(/[\s,]+/).filter(Boolean);
  const isOwn = form.target === 'isolated';
  const payloads = {
    agentTurn: {
      kind: 'agentTurn',
      message: form.text,
      model: (isOwn && form.model.trim()) || undefined,
      toolsAllow: isOwn && tools.length ? tools.filter((name) => name !== 'none') : undefined,
    },
    systemEvent: { kind: 'systemEvent', text: form.text },
  };
  const targets = {
    agentTurn: form.target === 'session' ? `session:${form.session.trim()}` : form.target, systemEvent: 'main',
  };
  const delivery = { mode: form.mode, to: (form.mode !== 'none' && form.to.trim()) || undefined };
  return {
    name: form.name.trim() || undefined,
    agentId: form.agent || undefined,
    sessionTarget: targets[form.kind],
    schedule: form.phrase.trim() || undefined,
    ...more,
    payload: { ...payloads[form.kind], ...more.payload },
    delivery: { ...delivery, ...more.delivery },
  };
}

/** What has changed, null for what is gone. The gateway merges parts of the same kind, and replaces others. */
function difference(before, after) {
  const changed = Object.keys({ ...before, ...after }).filter(
    (name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]),
  );
  return Object.fromEntries(changed.map((name) => {
    const [old, now, mark] = [before[name], after[name], MERGED[name]];
    if (!mark || old[mark] !== now[mark]) return [name, now ?? null];
    return [name, { [mark]: now[mark], ...difference(old, now) }];
  }));
}

/** Add a job, or change what is different now. Returns its id. */
async function store(base, form, phrase) {
  const patch = base ? difference(toJob(toForm(base, phrase)), toJob(form)) : toJob(form);
  if (typeof patch.schedule === 'string') {
    patch.schedule = (await gateway.call('cron.describe', { schedule: patch.schedule, tz: ZONE })).schedule;
  }
  if (!base) return (await gateway.call('cron.add', patch)).id;
  if (Object.keys(patch).length) await gateway.call('cron.update', { id: base.id, patch });
  return base.id;
}
