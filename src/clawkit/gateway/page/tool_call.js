// A call of a tool: one line, and its details when opened.

import { Badge, Exact, html, oneLine, useState } from './parts.js';
import { textOf } from './conversation.js';

const INFORMATIVE = ['command', 'path', 'pattern', 'url', 'query', 'task', 'action'];
const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

/** A call in a few words. @param {any} args */
function summarize(args) {
  const key = INFORMATIVE.find((each) => typeof args?.[each] === 'string');
  const text = key ? args[key] : JSON.stringify(args ?? {});
  return oneLine(text.slice(0, 200));
}

/** @param {{content: any}} props */
export function Images({ content }) {
  if (!Array.isArray(content)) return null;
  return content
    .filter((part) => part.type === 'image' && IMAGES.includes(part.mimeType))
    .map((part) => html`<img class="picture" src=${`data:${part.mimeType};base64,${part.data}`} alt="attached" />`);
}

/** @param {{diff: string}} props */
function Diff({ diff }) {
  const kinds = { '+': 'added', '-': 'removed', '@': 'place' };
  const rows = diff.replace(/\n$/, '').split('\n');
  return html`
    <pre class="diff" tabindex="0">${rows.map((row) => html`
      <span class=${kinds[row[0]] ?? ''}>${`${row}\n`}</span>`)}</pre>`;
}

function state(result, output) {
  if (!result) return output === undefined ? ['', 'waiting'] : ['warn', 'running'];
  const code = result.details?.exitCode;
  if (result.isError) return ['bad', 'failed'];
  return code ? ['bad', `exit ${code}`] : ['good', 'done'];
}

/** @param {{call: any, result?: any, output?: string, isActive: boolean, onOpen: () => void}} props */
export function ToolCall({ call, result, output, isActive, onOpen }) {
  const [isOpen, setOpen] = useState(false);
  const toggle = (event) => {
    setOpen(event.currentTarget.open);
    if (event.currentTarget.open && result) onOpen();
  };
  const [kind, words] = result || isActive ? state(result, output) : ['', 'no result'];
  const isLive = !result && output !== undefined;
  return html`
    <details class="call" onToggle=${toggle}>
      <summary><strong>${call.name}</strong> <code class="grow">${summarize(call.arguments)}</code>
        <${Badge} kind=${kind}>${words}<//></summary>
      ${isOpen && html`<${Details} call=${call} result=${result} />`}
    </details>
    ${isLive && html`<pre class="output" aria-label="Output of ${call.name}">${output.slice(-2_000)}</pre>`}`;
}

function Details({ call, result }) {
  const { command, ...rest } = call.arguments ?? {};
  const others = Object.keys(rest).length > 0;
  return html`
    ${typeof command === 'string' && html`<${Exact} text=${command} />`}
    ${others && html`<pre tabindex="0">${JSON.stringify(rest, null, 2)}</pre>`}
    ${typeof result?.details?.diff === 'string' && html`<${Diff} diff=${result.details.diff} />`}
    ${result && html`<h3 class="soft">Result</h3><pre class="output" tabindex="0">${textOf(result) || '(empty)'}</pre>
      <${Images} content=${result.content} />`}`;
}
