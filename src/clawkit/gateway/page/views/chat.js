// Chat: one session, its messages as they come, and what you say.

import { Approval } from '../approval.js';
import { Conversation, isCut } from '../conversation.js';
import { Markdown } from '../markdown.js';
import {
  announce, Bar, Button, compact, Component, createChat, Empty, gateway, html, Icon, Notice, oneLine, Select, Time,
  useEffect, useRef, useState, View,
} from '../parts.js';
import { Images, IMAGES, ToolCall } from '../tool_call.js';

const MAX_FILES = 10;
/** What is typed but not sent, by session. @type {Map<string, string>} */
const drafts = gateway.remember();

export default function Chat({ path }) {
  const key = path[0] || gateway.hello.snapshot.sessionDefaults.mainSessionKey;
  return html`<${Session} key=${key} wanted=${key} />`;
}

/** The conversation of a session; renders again whenever it changes. */
function useConversation(/** @type {string} */ key) {
  const [, update] = useState(0);
  const held = useRef(/** @type {Conversation | null} */ (null));
  useEffect(() => {
    // Several changes at once are shown together.
    let frame = 0;
    const changed = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => update((count) => count + 1));
    };
    const made = new Conversation(key, changed);
    held.current = made;
    return () => { cancelAnimationFrame(frame); made.close(); };
  }, [key]);
  return held.current;
}

function Session({ wanted }) {
  const chat = useConversation(wanted);
  if (!chat?.isLoaded) {
    return html`<${View} title="Chat"><${Notice} kind="bad">${chat?.problem}<//>
      <${Empty} data=${chat?.problem ? [] : null} /><//>`;
  }
  const title = oneLine(chat.row?.displayName || (chat.groups.length ? chat.key : 'New chat'));
  return html`
    <${Bar} title=${title}><${Controls} chat=${chat} /><//>
    <${Messages} chat=${chat} />
    <${Composer} chat=${chat} />`;
}

function Controls({ chat }) {
  const { row, about } = chat;
  const { modelProvider, model } = row ?? about.defaults;
  const current = `${modelProvider}/${model}`;
  const models = new Map(about.metadata.models.map((each) => [`${each.provider}/${each.id}`, each]));
  if (!models.has(current)) models.set(current, about.defaults);
  const levels = models.get(current).thinkingLevels.map((each) => [each.id, `thinking ${each.id}`]);
  return html`
    ${row && html`<small>${compact(row.totalTokens)} tokens</small>`}
    <${Select} label="Model" hideLabel title="Model" options=${[...models.keys()].map((each) => [each, each])}
      value=${current} onInput=${(value) => chat.patch('model', value)} />
    <${Select} label="Thinking" hideLabel title="Thinking" options=${levels}
      value=${row?.thinkingLevel ?? about.thinkingLevel} onInput=${(value) => chat.patch('thinkingLevel', value)} />
    <${Button} onClick=${createChat}>New chat<//>`;
}

function Messages({ chat }) {
  const top = useRef(null);
  const { asked, groups } = chat;
  useEffect(() => {
    const look = new IntersectionObserver(
      ([entry]) => entry.isIntersecting && chat.loadOlder(), { rootMargin: '400px' },
    );
    look.observe(top.current);
    return () => look.disconnect();
  }, [chat, groups.length]);
  useEffect(() => { if (asked.length) announce('An approval is needed.'); }, [asked.length]);
  useEffect(() => announce(chat.isRunning ? 'Working.' : 'Ready.'), [chat.isRunning]);
  const isEmpty = !groups.length && !chat.pending.length && !chat.streaming;
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label="Messages">
      <div class="messages">
        <div ref=${top}>${chat.hasMore && html`<p class="empty">Loading older messages…</p>`}</div>
        ${isEmpty && html`<${Empty}>Nothing has been said here yet.<//>`}
        ${groups.map((each) => html`<${Group} key=${each.id} group=${each} chat=${chat} />`)}
        ${chat.streaming && html`<article class="message assistant" aria-label="Answer, being written">
          <${Markdown} text=${chat.streaming} /></article>`}
        ${chat.pending.map((each) => html`<${Pending} key=${each.id} sent=${each} chat=${chat} />`)}
        ${asked.map((each) => html`<${Approval} key=${each.id} approval=${each} />`)}
        ${chat.problem && html`<${Notice} kind="warn">${chat.problem}<//>`}
        ${chat.isRunning && !chat.streaming && !asked.length && html`<p class="working">Working…</p>`}
      </div>
    </div>`;
}

/** Some messages. They are rendered again only if one of them has changed. */
class Group extends Component {
  shouldComponentUpdate(next) {
    return next.group !== this.props.group;
  }

  render({ group, chat }) {
    return html`<div class="group">
      ${group.messages.map((each) => html`
        <${Message} key=${each.__openclaw.id} message=${each} chat=${chat} />`)}</div>`;
  }
}

function Message({ message, chat }) {
  const parts = Array.isArray(message.content) ? message.content : [{ type: 'text', text: message.content }];
  const name = { user: 'You', assistant: 'Answer', system: 'Note' }[message.role] ?? message.role;
  return html`
    <article class="message ${message.role}" aria-label=${name}>
      ${parts.map((part, index) => html`<${Part} key=${index} part=${part} chat=${chat} role=${message.role} />`)}
      <${Images} content=${message.content} />
      ${message.errorMessage && html`<${Notice} kind="bad">${message.errorMessage}<//>`}
      ${isCut(message) && html`<${Button} onClick=${() => chat.loadWhole(message)}>Show all<//>`}
      <footer><${Time} at=${message.timestamp} /></footer>
    </article>`;
}

function Part({ part, chat, role }) {
  if (part.type === 'text' && part.text.trim()) {
    if (role === 'assistant') return html`<${Markdown} text=${part.text} />`;
    return html`<div class="plain">${part.text}</div>`;
  }
  if (part.type === 'thinking') {
    return html`
      <details class="thinking"><summary>Thinking</summary><div class="plain">${part.thinking}</div></details>`;
  }
  if (part.type === 'toolCall') {
    return html`<${ToolCall} call=${part} chat=${chat} />`;
  }
  return null;
}

function Pending({ sent, chat }) {
  return html`
    <article class="message user pending" aria-label="You, being sent">
      <div class="plain">${sent.text}</div>
      ${sent.problem && html`<${Notice} kind="bad">${sent.problem}<//>
        <${Button} onClick=${() => chat.drop(sent)}>Discard<//>`}
    </article>`;
}

/** A file as an attachment. Rejects what cannot be attached. @param {File} file */
async function readFile(file) {
  const { maxImageBytes } = gateway.hello.policy.attachments;
  if (!IMAGES.includes(file.type)) {
    throw new Error(`${file.name}: only images can be attached (PNG, JPEG, GIF, WebP).`);
  }
  if (file.size > maxImageBytes) throw new Error(`${file.name}: larger than ${compact(maxImageBytes)} bytes.`);
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(new Error(`${file.name}: cannot be read.`));
    reader.readAsDataURL(file);
  });
  return { fileName: file.name.slice(0, 200), mimeType: file.type, content: url.split(',')[1], url };
}

/** Keyboards on screens have no other way to start a new line. */
const hasTouch = matchMedia('(pointer: coarse)').matches;
const stay = (event) => event.preventDefault();

function Composer({ chat }) {
  const [text, setText] = useState(drafts.get(chat.key) ?? '');
  const [files, setFiles] = useState([]);
  const [problem, setProblem] = useState('');
  const input = useRef(null);
  const write = (/** @type {string} */ now) => {
    setText(now);
    drafts.set(chat.key, now);
  };
  const attach = async (/** @type {Iterable<File>} */ given) => {
    setProblem('');
    // Copied now: what was dropped is gone after the event.
    for (const file of [...given]) {
      try {
        const read = await readFile(file);
        setFiles((held) => [...held, read].slice(0, MAX_FILES));
      } catch (error) {
        setProblem(error.message);
      }
    }
  };
  const send = () => {
    if (!text.trim() && !files.length) return;
    chat.send(text, files);
    write('');
    setFiles([]);
    input.current.focus();
  };
  const press = (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && !hasTouch) {
      event.preventDefault();
      send();
    }
  };
  // Anywhere on the page: the browser would open what is dropped elsewhere, and leave the page.
  useEffect(() => {
    const drop = (/** @type {DragEvent} */ event) => {
      event.preventDefault();
      attach(event.dataTransfer?.files ?? []);
    };
    addEventListener('drop', drop);
    addEventListener('dragover', stay);
    return () => { removeEventListener('drop', drop); removeEventListener('dragover', stay); };
  }, []);
  const paste = (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    attach(event.clipboardData.files);
  };
  const choose = (event) => {
    attach(event.target.files);
    event.target.value = '';
  };
  const hint = chat.isRunning ? 'Say something to the running turn…'
    : hasTouch ? 'Message…' : 'Message… (Enter sends, Shift+Enter for a new line)';
  return html`
    <form class="composer" onSubmit=${stay}>
      <${Notice} kind="bad">${problem}<//>
      ${files.length > 0 && html`<div class="row">${files.map((each) => html`
        <span class="attached" key=${each.url}><img src=${each.url} alt=${each.fileName} />
          <${Button} kind="icon" label="Remove ${each.fileName}"
            onClick=${() => setFiles(files.filter((one) => one !== each))}>✕<//></span>`)}</div>`}
      <div class="row">
        <label class="button" title="Attach images">
          <${Icon} d="M12 5v14M5 12h14" /><span class="unseen">Attach images</span>
          <input class="unseen" type="file" accept=${IMAGES.join(',')} multiple onChange=${choose} /></label>
        <textarea ref=${input} class="grow" rows="2" aria-label="Message" value=${text} autofocus placeholder=${hint}
          onInput=${(event) => write(event.target.value)} onKeyDown=${press} onPaste=${paste}></textarea>
        ${chat.isRunning && html`<${Button} kind="danger" onClick=${() => chat.stop()}>Stop<//>`}
        <${Button} kind="primary" disabled=${!gateway.may('write')} onClick=${send}>
          ${chat.isRunning ? 'Steer' : 'Send'}<//>
      </div>
    </form>`;
}
