// A call of a tool: one line, and its details when opened.

import { Badge, Diff, Exact, html, oneLine, useState } from './parts.js';
import { isCut, textOf } from './conversation.js';

const INFORMATIVE = ['command', 'path', 'pattern', 'url', 'query', 'task', 'action'];
export const IMAGES = ['image/png', 'image/jpeg', 'image/gif', 'image/webp'];

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

/** The state of a call in a word, and its kind. @param {any} chat @param {any} call @param {any} result */
function state(chat, call, result) {
  if (result?.isError) return ['bad', 'failed'];
  const code = result?.details?.exitCode;
  if (result) return code ? ['bad', `exit ${code}`] : ['good', 'done'];
  if (!chat.isRunning) return ['', 'no result'];
  if (chat.asked.some(({ request }) => request.toolCallId === call.id)) return ['warn', 'needs approval'];
  return chat.output.has(call.id) ? ['warn', 'running'] : ['', 'waiting'];
}

/** @param {{call: any, chat: import('./conversation.js').Conversation}} props */
export function ToolCall({ call, chat }) {
  const [isOpen, setOpen] = useState(false);
  const result = chat.results.get(call.id);
  const toggle = (event) => {
    setOpen(event.currentTarget.open);
    if (event.currentTarget.open && result && isCut(result)) chat.loadWhole(result);
  };
  const [kind, words] = state(chat, call, result);
  const output = result ? '' : chat.output.get(call.id);
  return html`
    <details class="call" onToggle=${toggle}>
      <summary><strong>${call.name}</strong> <code class="grow">${summarize(call.arguments)}</code>
        <${Badge} kind=${kind}>${words}<//></summary>
      ${isOpen && html`<${Details} call=${call} result=${result} />`}
    </details>
    ${output && html`
      <pre class=${call.arguments?.pty ? 'screen' : 'output'} tabindex="0" aria-label="Output of ${call.name}">${output}</pre>`}`;
}

function Details({ call, result }) {
  const { command, ...rest } = call.arguments ?? {};
  const others = Object.keys(rest).length > 0;
  return html`
    ${typeof command === 'string' && html`<${Exact} text=${command} />`}
    ${others && html`<pre tabindex="0">${JSON.stringify(rest, null, 2)}</pre>`}
    ${typeof result?.details?.diff === 'string' && html`<${Diff} lines=${result.details.diff.trimEnd().split('\n')} />`}
    ${result && html`<h3 class="soft">Result</h3><pre class="output" tabindex="0">${textOf(result) || '(empty)'}</pre>
      <${Images} content=${result.content} />`}`;
}
