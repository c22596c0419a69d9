// @ts-check
// Configuration: forms from the schema, and the file itself; what would change is shown before it is saved.

import {
  announce, Button, Dialog, Diff, Empty, gateway, html, link, Notice, useCall, useEffect, useLayoutEffect, useState, View,
} from '../parts.js';
import { listsIn, MARKER, patched, patchOf, Prose, Setting } from '../setting_form.js';

const FILE = 'file';
const RESTART = 'Some of this takes effect when the gateway is restarted.';
const RESTARTS = 'Saving restarts the gateway.';
const NOTHING = { base: null, values: {}, text: '' };
/** Changes that are not saved survive a look at another view. */
const kept = gateway.remember();

export default function Config({ path }) {
  const { data, error, reload } = useCall('config.get', {}, ['config.changed']);
  const schema = useCall('config.schema');
  const [edit, setEdit] = useState(kept.get('edit') ?? NOTHING);
  // At once, and not after painting: whoever leaves in between would find the old ones again.
  useLayoutEffect(() => { kept.set('edit', edit); }, [edit]);
  const [problem, setProblem] = useState(null);
  const [review, setReview] = useState(null);
  const { base } = edit;
  const patch = base ? patchOf(base.config, edit.values) : {};
  const changesForm = Object.keys(patch).length > 0;
  const changesFile = base !== null && edit.text !== (base.raw ?? '');
  const adopt = (found, values = found.config) => {
    setEdit({ base: found, values, text: found.raw ?? '' });
    setProblem(null);
  };
  useEffect(() => { if (data && !changesForm && !changesFile) adopt(data); }, [data]);
  if (!base || !schema.data) {
    return html`
      <${View} title="Configuration"><${Notice} error=${error ?? schema.error} /><${Empty} data=${null} /><//>`;
  }
  const isFile = path[0] === FILE || !base.valid;
  const isChanged = isFile ? changesFile : changesForm;
  const send = (dryRun) => {
    const common = { baseHash: base.hash, dryRun };
    if (isFile) return gateway.call('config.set', { ...common, raw: edit.text });
    return gateway.call('config.patch', { ...common, raw: JSON.stringify(patch), replacePaths: listsIn(patch) });
  };
  const look = async () => {
    setProblem(null);
    try {
      setReview(await send(true));
    } catch (wrong) {
      setProblem(wrong);
      await reload(); // it may have been changed by others
    }
  };
  const save = async () => {
    await send(false);
    // What was saved is no change any more, so that the new file is taken up when it is there.
    setEdit({ ...edit, base: { ...base, config: edit.values, raw: edit.text } });
    await reload();
    setReview(null);
    announce('Saved.');
  };
  const actions = gateway.may('admin') && html`
    <${Button} disabled=${!isChanged} onClick=${() => adopt(data ?? base)}>Discard<//>
    <${Button} kind="primary" disabled=${!isChanged} onClick=${look}>Review<//>`;
  const props = { edit, setEdit, schema: schema.data, issues: problem?.details?.issues ?? [] };
  return html`
    <${View} title="Configuration" wide actions=${actions}>
      <${Problems} base=${base} data=${data} problem=${problem} isChanged=${changesForm || changesFile}
        keep=${() => adopt(data, patched(data.config, patch))} isFile=${changesFile} />
      ${!base.valid && html`<${Invalid} base=${base} />`}
      ${(base.valid || base.raw !== null) && html`
        <div class="config">
          <${Sections} schema=${schema.data} current=${path[0]} changed=${changesFile ? [FILE] : Object.keys(patch)} />
          ${isFile ? html`<${File} ...${props} locked=${changesForm} />`
            : html`<${Form} key=${path[0]} name=${path[0] ?? ''} ...${props} locked=${changesFile} />`}
        </div>`}
      ${review && html`<${Review} review=${review} save=${save} onClose=${() => setReview(null)} />`}
    <//>`;
}

function Problems({ base, data, problem, isChanged, keep, isFile }) {
  const isStale = data && data.hash !== base.hash && isChanged;
  const issues = problem?.details?.issues;
  return html`
    ${issues ? html`<${Notice} kind="bad">This is not valid: <${Issues} issues=${issues} /><//>`
      : html`<${Notice} error=${problem} />`}
    ${data?.restartNeeded.length > 0 && html`<${Notice} kind="warn">
      Not in force before the gateway is restarted: ${data.restartNeeded.join(', ')}<//>`}
    ${isStale && html`<${Notice} kind="warn">The file has been changed since you began. ${isFile
      ? 'Copy your text, and discard your changes to see the new file.'
      : html`<${Button} onClick=${keep}>Put my changes on top of it<//>`}<//>`}
    ${base.warnings.length > 0 && html`<${Notice} kind="warn"><${Issues} issues=${base.warnings} /><//>`}`;
}

const Invalid = ({ base }) => html`
  <${Notice} kind="bad">
    The file <code>${base.path}</code> is invalid.
    ${base.raw === null && ' It cannot be edited here until it is fixed there.'}
    <${Issues} issues=${base.issues} /><//>`;

const Issues = ({ issues }) => html`
  <ul>${issues.map(({ path, message }) => html`
    <li key=${path + message}>${path && html`<a href=${link('config', path.split(/[.[]/)[0])}>${path}</a>: `}
      ${message}</li>`)}</ul>`;

const rootOf = (schema) => schema.schema.$defs.Config.properties;

function Sections({ schema, current, changed }) {
  const names = Object.keys(rootOf(schema)).filter((name) => !name.startsWith('$'));
  const isIdle = (name) => schema.uiHints[name]?.noEffect;
  const item = (name, shown = name) => html`
    <a key=${name} href=${link('config', name)} aria-current=${name === current ? 'page' : null}
      class=${isIdle(name) ? 'soft' : ''}>${shown}
      ${changed.includes(name) && html`<span class="warn" aria-label="changed">●</span>`}</a>`;
  return html`
    <nav class="sections" aria-label="Sections">
      ${item(FILE, 'The file itself')}
      ${names.toSorted((a, b) => Boolean(isIdle(a)) - Boolean(isIdle(b))).map((name) => item(name))}
    </nav>`;
}

const Locked = ({ where }) => html`<${Empty}>There are unsaved changes ${where}. Save or discard them first.<//>`;

function Form({ name, edit, setEdit, schema, issues, locked }) {
  const [showsIdle, setShowsIdle] = useState(false);
  const found = rootOf(schema)[name];
  if (locked) return html`<${Locked} where="in the file" />`;
  if (!found) return html`<${Empty}>Choose a section. Changes are shown to you before they are saved.<//>`;
  const hints = schema.uiHints;
  const form = { defs: schema.schema.$defs, hints, issues, showsIdle: showsIdle || hints[name]?.noEffect };
  const change = (value) => setEdit((old) => {
    const { [name]: _, ...rest } = old.values;
    return { ...old, values: value === undefined ? rest : { ...rest, [name]: value } };
  });
  return html`
    <form class="settings" aria-label=${`Settings of ${name}`} onSubmit=${(event) => event.preventDefault()}>
      <h2>${name}</h2><p class="hint"><${Prose} text=${found.description} /></p>
      ${hints[name] && html`<${Notice} kind="warn">${hints[name].help}<//>`}
      <label class="row">
        <input type="checkbox" checked=${showsIdle} onInput=${(event) => setShowsIdle(event.target.checked)} />
        Show settings without effect
      </label>
      <${Setting} bare name=${name} path=${[name]} schema=${found} form=${form} onChange=${change}
        value=${edit.values[name]} stored=${edit.base.config[name]} />
    </form>`;
}

function File({ edit, setEdit, locked }) {
  if (locked) return html`<${Locked} where="in the forms" />`;
  return html`
    <div class="grow">
      <p class="hint"><code>${edit.base.path}</code><br />
        Comments stay. <code>${MARKER}</code> stands for a stored secret: leave it to keep the secret.</p>
      <textarea class="mono file" aria-label="The configuration file" spellcheck="false" value=${edit.text}
        readonly=${!gateway.may('admin')} onInput=${(event) => setEdit({ ...edit, text: event.target.value })} />
    </div>`;
}

function Review({ review, save, onClose }) {
  return html`
    <${Dialog} title="Save these changes?" onClose=${onClose}>
      ${review.requiresRestart && html`
        <${Notice} kind="warn">${review.restartsInMs === undefined ? RESTART : RESTARTS}<//>`}
      ${review.diff.length ? html`<${Diff} lines=${review.diff.slice(2)} />` : html`<p>Nothing would change.</p>`}
      <div class="row end"><${Button} kind="primary" disabled=${!review.diff.length} onClick=${save}>Save<//></div>
    <//>`;
}
