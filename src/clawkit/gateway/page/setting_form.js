// @ts-check
// Forms for settings, generated from the schema of the configuration.

import { Badge, Button, Field, html, Select, useEffect, useRef, useState } from './parts.js';

/** What stands for a secret that is stored; sent back, it keeps the secret. */
export const MARKER = '__OPENCLAW_REDACTED__';
const NAME = /^[^.[\]"'\s\u0000-\u001f]+$/;

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** The merge patch from one value to another; null removes. */
export function patchOf(old, now) {
  const patch = Object.create(null); // `__proto__` is a key like any other
  for (const key of new Set([...Object.keys(old), ...Object.keys(now)])) {
    if (isSame(old[key], now[key])) continue;
    const goesOn = isObject(old[key]) && isObject(now[key]);
    patch[key] = goesOn ? patchOf(old[key], now[key]) : now[key] ?? null;
  }
  return patch;
}

/** A value with a merge patch applied. */
export function patched(value, patch) {
  if (!isObject(patch)) return patch;
  const made = Object.assign(Object.create(null), isObject(value) ? value : {});
  for (const [key, each] of Object.entries(patch)) {
    if (each === null) delete made[key];
    else made[key] = patched(made[key], each);
  }
  return made;
}

/** Paths of the lists in a patch: they replace what is there. */
export function listsIn(patch, path = []) {
  return Object.entries(patch).flatMap(([key, value]) => {
    if (Array.isArray(value)) return [formatPath([...path, key])];
    return isObject(value) ? listsIn(value, [...path, key]) : [];
  });
}

/** The text of a path, as the gateway writes it: `agents.list[0].name`. */
function formatPath(path) {
  return path.map((step) => {
    if (typeof step === 'number') return `[${step}]`;
    return NAME.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`;
  }).join('').replace(/^\./, '');
}

/**
 * One setting, or all settings of a section. `stored` is what the file has, `value` what is edited;
 * undefined is unset. `form` has the definitions and hints of the schema, the problems by path, and
 * whether to show settings without effect.
 * @param {any} props
 */
export function Setting({ schema, path, form, ...more }) {
  const full = resolve(schema, form.defs);
  const problems = form.issues.filter((each) => each.path === formatPath(path));
  const Kind = KINDS[kindOf(full)];
  const isChanged = !more.bare && !isSame(more.value, more.stored);
  return html`
    <div class=${isChanged ? 'setting changed' : 'setting'}>
      <${Kind} schema=${full} path=${path} form=${form} ...${more} />
      ${problems.map((each) => html`<div class="bad" role="alert" key=${each.message}>${each.message}</div>`)}
    </div>`;
}

function resolve(schema, defs) {
  if (!schema.$ref) return schema;
  const { $ref, ...own } = schema;
  return { ...defs[$ref.split('/').at(-1)], ...own };
}

function kindOf(schema) {
  if (schema.anyOf?.some((each) => each.$ref?.endsWith('/SecretRef'))) return 'secret';
  if (schema.anyOf) return schema.anyOf.every((each) => each.enum) ? 'word' : 'choice';
  if (schema.enum) return 'word';
  if (schema.properties) return 'section';
  if (isObject(schema.additionalProperties)) return 'map';
  if (schema.type === 'array') return schema.items?.type === 'string' || schema.items?.enum ? 'lines' : 'list';
  return schema.type in KINDS ? schema.type : 'json';
}

/** A description; what is in backquotes is code. */
export const Prose = ({ text = '' }) => text.split('`').map(
  (part, index) => (index % 2 ? html`<code>${part}</code>` : part),
);

/** The frame of a setting with others in it; they are made when it is opened. */
function Group({ name, schema, path, form, remove, children }) {
  const [open, setOpen] = useState(false);
  const here = formatPath(path);
  const isInside = ({ path: other }) => other.startsWith(here) && '.['.includes(other[here.length]);
  const wrong = form.issues.filter(isInside).length;
  return html`
    <details class="section" open=${open || wrong > 0} onToggle=${(event) => setOpen(event.target.open)}>
      <summary><strong>${name}</strong> ${wrong > 0 && html`<${Badge} kind="bad">${wrong} wrong<//>`}
        <small><${Prose} text=${schema.description} /></small></summary>
      ${(open || wrong > 0) && html`<div class="inside">${children()}
        ${remove && html`<${Button} kind="danger" onClick=${remove}>Remove ${name}<//>`}</div>`}
    </details>`;
}

function Section({ schema, value, stored, onChange, path, form, bare, ...more }) {
  const has = isObject(value) ? value : {};
  const hint = (key) => hintFor(form.hints, [...path, key]);
  const known = Object.entries(schema.properties).filter(([key, each]) => Object.hasOwn(has, key)
    || (!each.deprecated && !key.startsWith('$') && (form.showsIdle || !hint(key)?.noEffect)));
  const unknown = Object.keys(has).filter((key) => !Object.hasOwn(schema.properties, key)).map((key) => [key, {}]);
  const change = (key) => (inner) => {
    const { [key]: _, ...rest } = has;
    onChange(inner === undefined ? rest : { ...has, [key]: inner });
  };
  const inside = () => [...known, ...unknown].map(([key, each]) => html`
    <${Setting} key=${key} name=${key} path=${[...path, key]} schema=${each} value=${has[key]}
      stored=${stored?.[key]} onChange=${change(key)} form=${form} />
    ${hint(key) && html`<small class="warn">${hint(key).help}</small>`}`);
  if (bare) return inside();
  return html`<${Group} schema=${schema} path=${path} form=${form} ...${more}>${inside}<//>`;
}

/** What the schema says about a setting besides its type; `*` in a path of a hint is any entry. */
const hintFor = (hints, path) => Object.entries(hints).find(([key]) => {
  const steps = key.split('.');
  return steps.length === path.length && steps.every((step, index) => step === '*' || step === String(path[index]));
})?.[1];

/** Entries that people name, or number. */
function Entries({ schema, value, stored, onChange, path, form, ...more }) {
  const [added, setAdded] = useState('');
  const isList = schema.type === 'array';
  const entries = isList ? (value ?? []).map((each, index) => [index, each]) : Object.entries(value ?? {});
  const inner = isList ? schema.items : schema.additionalProperties;
  const put = (key, each) => {
    const all = new Map(entries).set(key, each);
    if (each === undefined) all.delete(key);
    onChange(isList ? [...all.values()] : Object.fromEntries(all));
  };
  const add = () => {
    put(isList ? entries.length : added, { object: {}, array: [] }[resolve(inner, form.defs).type] ?? '');
    setAdded('');
  };
  const inside = () => html`
    ${entries.map(([key, each]) => html`
      <${Setting} key=${key} name=${isList ? each?.id ?? `${key + 1}.` : key} path=${[...path, key]} form=${form}
        schema=${inner} value=${each} stored=${stored?.[key]} onChange=${(now) => put(key, now ?? '')}
        remove=${() => put(key, undefined)} />`)}
    <div class="row">
      ${!isList && html`
        <${Field} label="Name of a new entry" hideLabel placeholder="name" value=${added} onInput=${setAdded} />`}
      <${Button} disabled=${!isList && (!added || Object.hasOwn(value ?? {}, added))} onClick=${add}>Add<//>
    </div>`;
  return html`<${Group} schema=${schema} path=${path} form=${form} ...${more}>${inside}<//>`;
}

/** A field with what is common to all of them; what is empty is unset. */
function Input({ schema, name, value, onChange, remove, path: _, form: __, stored: ___, children, ...more }) {
  const fallback = schema.default === undefined ? 'not set' : `default: ${JSON.stringify(schema.default)}`;
  const hint = schema.description && html`<${Prose} text=${schema.description} />`;
  return html`
    <${Field} label=${name} hint=${hint} placeholder=${fallback} value=${value ?? ''}
      onInput=${(text) => onChange(text === '' ? undefined : text)} ...${more}>${children}<//>
    ${remove && html`<${Button} kind="plain" onClick=${remove}>Remove ${name}<//>`}`;
}

function Word({ schema, value, onChange, ...more }) {
  const words = schema.enum ?? schema.anyOf?.flatMap((each) => each.enum) ?? [true, false];
  const fallback = schema.default === undefined ? 'not set' : `default (${schema.default})`;
  const choose = (text) => onChange(words.find((word) => String(word) === text));
  const options = [[undefined, fallback], ...words.map((word) => [word, String(word)])];
  return html`
    <${Input} as="select" schema=${schema} value=${String(value ?? '')} ...${more} onChange=${choose}>
      ${options.map(([word, shown]) => html`
        <option key=${shown} value=${String(word ?? '')} selected=${word === value}>${shown}</option>`)}<//>`;
}

function Numeric({ onChange, schema, ...more }) {
  const limits = { min: schema.minimum, max: schema.maximum, step: schema.type === 'integer' ? 1 : 'any' };
  const change = (text) => onChange(text === undefined ? undefined : Number(text));
  return html`<${Input} type="number" schema=${schema} ...${limits} ...${more} onChange=${change} />`;
}

function Words(props) {
  const Kind = [props.value, props.stored].includes(MARKER) ? Secret : Input;
  return html`<${Kind} ...${props} />`;
}

/** A secret is never shown. What is stored stays unless another one is typed. */
function Secret(props) {
  const { value, stored, onChange } = props;
  if (isObject(value)) return html`<${Json} ...${props} />`;
  const isStored = stored === MARKER;
  const remove = value === undefined ? null : () => onChange(undefined);
  return html`
    <${Input} type="password" autocomplete="new-password" remove=${remove} ...${props}
      value=${value === MARKER ? '' : value} placeholder=${isStored ? '•••••••• (stored)' : 'not set'}
      onChange=${(text) => onChange(text ?? (isStored ? MARKER : undefined))} />`;
}

/** A field for a value that is written as text. The text follows the value if that is changed elsewhere. */
function TextFor({ value, onChange, write, read, ...more }) {
  const [text, setText] = useState(write(value));
  const [problem, setProblem] = useState('');
  const seen = useRef(value);
  useEffect(() => {
    if (isSame(value, seen.current)) return;
    seen.current = value;
    setText(write(value));
    setProblem('');
  }, [value]);
  const change = (given = '') => {
    setText(given);
    try {
      seen.current = given === '' ? undefined : read(given);
      onChange(seen.current);
      setProblem('');
    } catch (error) {
      setProblem(`Not taken over: ${error.message}`);
    }
  };
  return html`
    <${Input} as="textarea" spellcheck="false" rows=${Math.min(12, text.split('\n').length + 1)} ...${more}
      value=${text} onChange=${change} />
    ${problem && html`<div class="bad" role="alert">${problem}</div>`}`;
}

const Lines = (props) => html`<${TextFor} placeholder="one in each line" write=${(value = []) => value.join('\n')}
  read=${(text) => text.split('\n').map((line) => line.trim()).filter(Boolean)} ...${props} />`;

const Json = (props) => html`<${TextFor} class="mono" placeholder="JSON" read=${JSON.parse}
  write=${(value) => (value === undefined ? '' : JSON.stringify(value, null, 2))} ...${props} />`;

/** A setting of several kinds: that of its value, else the one that is picked. */
function Choice({ schema, value, onChange, ...more }) {
  const kinds = schema.anyOf.map((each) => resolve(each, more.form.defs));
  const own = kinds.findIndex((each) => value !== undefined && isOf(value, each));
  const [picked, setPicked] = useState(0);
  const at = own >= 0 ? own : picked;
  const Kind = KINDS[kindOf(kinds[at])];
  const { description, default: fallback } = schema;
  const pick = (index) => { setPicked(Number(index)); onChange(undefined); };
  const names = kinds.map((each, index) => [index, each.enum ? 'word' : KIND_NAMES[each.type] ?? 'number']);
  return html`
    <${Kind} key=${at} schema=${{ ...kinds[at], description, default: fallback }} ...${more}
      value=${value} onChange=${onChange} />
    <${Select} class="kind" label=${`Kind of ${more.name}`} hideLabel options=${names} value=${at} onInput=${pick} />`;
}

const KIND_NAMES = { string: 'text', array: 'list', object: 'object', boolean: 'yes or no' };

function isOf(value, schema) {
  if (schema.enum) return schema.enum.includes(value);
  const type = Array.isArray(value) ? 'array' : typeof value;
  return schema.type === type || (type === 'number' && schema.type === 'integer');
}

const KINDS = {
  secret: Secret, choice: Choice, word: Word, boolean: Word, integer: Numeric, number: Numeric, string: Words,
  lines: Lines, list: Entries, map: Entries, section: Section, json: Json,
};
