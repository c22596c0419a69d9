// @ts-check
// The messages of one session. The gateway is the truth: a message is known by its sequence number,
// so that nothing appears twice, and after a reconnect the latest ones are loaded again.

import { EVENTS } from './approval.js';
import { gateway } from './client.js';

const PAGE = 50;
const MAX_CHARS = 8_000;
// What is being written is rendered again with every word.
const MAX_STREAMING = 4_000;
const CUT = '\n[… cut]';
const CUT_START = '… ';
const NONE = { content: '' };

/** What this page has sent and not yet seen in a session, by key. @type {Map<string, any[]>} */
const unseen = gateway.remember();

/** The conversation that is open. @type {Conversation | null} */
let opened = null;

/** Send it, again if needed: the id keeps it from being taken twice. @param {string} key @param {any} sent */
async function submit(key, sent, isRunning = false) {
  const attachments = sent.attachments.map(({ mimeType, fileName, content }) => ({ mimeType, fileName, content }));
  const steer = isRunning ? { queueMode: 'steer' } : {};
  const params = { sessionKey: key, message: sent.text, idempotencyKey: sent.id, attachments, ...steer };
  try {
    const { status } = await gateway.call('chat.send', params);
    if (status !== 'started' && status !== 'in_flight') drop(key, sent);
  } catch (caught) {
    const error = /** @type {any} */ (caught);
    if (error.code !== 'OFFLINE') sent.problem = error.message;
  }
}

function drop(/** @type {string} */ key, /** @type {any} */ sent) {
  unseen.set(key, (unseen.get(key) ?? []).filter((each) => each !== sent));
}

// What was said while offline is sent, whichever view is open; an open conversation does it itself.
gateway.watch(() => {
  if (gateway.state !== 'ready') return;
  for (const [key, held] of unseen) if (key !== opened?.key) for (const each of held) submit(key, each);
});

/** The text of a message. @param {any} message @returns {string} */
export function textOf(message) {
  if (typeof message.content === 'string') return message.content;
  return message.content.filter((part) => part.type === 'text').map((part) => part.text).join('\n');
}

/** Whether a text was cut by the gateway, and can be fetched whole. @param {any} message */
export const isCut = (message) => textOf(message).includes(CUT);

export class Conversation {
  /** @type {Map<number, any>} */
  #bySeq = new Map();
  /** Messages in groups; a group that has changed is another object. @type {Map<number, any>} */
  #groups = new Map();
  /** The groups of calls, by their ids. @type {Map<string, number>} */
  #groupOf = new Map();
  #last = 0;
  #ends = /** @type {(() => void)[]} */ ([]);
  #changed;
  #loading = false;
  /** Results by the id of their call. @type {Map<string, any>} */
  results = new Map();
  /** Questions that wait for an answer. @type {any[]} */
  asked = [];
  /** Output so far, of calls that have started and have no result. @type {Map<string, string>} */
  output = new Map();
  /** The answer that is being written. */
  streaming = '';
  /** @type {any} */
  row = null;
  /** @type {any} */
  about = null;
  sessionId = '';
  hasMore = false;
  isLoaded = false;
  isRunning = false;
  problem = '';

  /** @param {string} key @param {() => void} changed Called after every change. */
  constructor(key, changed) {
    this.key = key;
    this.#changed = changed;
    opened = this;
    const here = (/** @type {(payload: any) => void} */ take) => (/** @type {any} */ payload) => {
      if (payload.sessionKey === this.key) take(payload);
    };
    this.#ends = [
      gateway.on('session.message', here((payload) => this.#takeMessage(payload))),
      gateway.on('session.tool', here((payload) => this.#takeTool(payload.data))),
      gateway.on('chat', here((payload) => this.#takeChat(payload))),
      gateway.on('sessions.changed', here((payload) => this.#takeChange(payload))),
      ...EVENTS.map((event) => gateway.on(event, () => this.#loadAsked())),
      gateway.watch(() => gateway.state === 'ready' && this.load()),
    ];
    this.load();
  }

  close() {
    this.#ends.forEach((end) => end());
    this.#changed = () => {};
    if (opened === this) opened = null;
  }

  /** The messages in the order of the session, in groups that are rendered again if they change. */
  get groups() {
    return [...this.#groups.values()].sort((a, b) => a.id - b.id);
  }

  /** What was sent and is not in the session yet. */
  get pending() {
    return unseen.get(this.key) ?? [];
  }

  /** Load the latest messages. */
  async load() {
    const { streaming } = this;
    try {
      const params = { sessionKey: this.key, limit: PAGE, maxChars: MAX_CHARS };
      const found = await gateway.call('chat.startup', params);
      this.key = found.sessionKey;
      const first = found.messages[0]?.__openclaw.seq ?? 0;
      // Older ones are kept if they are of this conversation, and nothing is missing in between.
      if (found.sessionId !== this.sessionId || first > this.#last + 1) this.#clear();
      this.sessionId = found.sessionId;
      this.about = found;
      this.isLoaded = true;
      this.#takeRow(found.sessionInfo);
      this.#add(found.messages);
      this.hasMore = this.#bySeq.size < found.totalMessages;
      // What is being written may be a stored message by now.
      const isStored = textOf(found.messages.at(-1) ?? NONE).includes(this.streaming.replace(CUT_START, ''));
      if (this.streaming === streaming || isStored) this.streaming = '';
      // Which calls have started is not known: all have, until they are seen to end.
      for (const call of this.#groupOf.keys()) if (!this.results.has(call)) this.#startCall(call);
      this.#loadAsked();
      for (const each of this.pending) this.#submit(each);
    } catch (error) {
      this.#fail(error);
    }
    this.#changed();
  }

  async #loadAsked() {
    if (!gateway.may('approvals')) return;
    const all = await gateway.call('exec.approval.list').catch(() => null);
    const before = this.asked;
    this.asked = all?.filter((each) => each.request.sessionKey === this.key) ?? before;
    for (const { request } of [...before, ...this.asked]) this.#touch(this.#groupOf.get(request.toolCallId));
    this.#changed();
  }

  /** Load older messages. */
  async loadOlder() {
    if (this.#loading || !this.hasMore) return;
    this.#loading = true;
    try {
      const params = { sessionKey: this.key, limit: PAGE, maxChars: MAX_CHARS, offset: this.#bySeq.size };
      const found = await gateway.call('chat.history', params);
      if (found.sessionId === this.sessionId) {
        this.#add(found.messages);
        this.hasMore = found.hasMore;
      }
    } catch (error) {
      this.#fail(error);
    }
    this.#loading = false;
    this.#changed();
  }

  /** Replace a message that was cut by the whole one. @param {any} message */
  async loadWhole(message) {
    const { id, seq } = message.__openclaw;
    const newer = [...this.#bySeq.keys()].filter((each) => each > seq).length;
    const params = { sessionKey: this.key, limit: 3, offset: Math.max(0, newer - 1) };
    const found = await gateway.call('chat.history', params);
    this.#add(found.messages.filter((each) => each.__openclaw.id === id));
    this.#changed();
  }

  /** @param {string} text @param {any[]} attachments */
  send(text, attachments) {
    const sent = { id: crypto.randomUUID(), text, attachments, at: Date.now(), problem: '' };
    unseen.set(this.key, [...this.pending, sent]);
    this.problem = '';
    this.#submit(sent);
    this.#changed();
  }

  async #submit(/** @type {any} */ sent) {
    await submit(this.key, sent, this.isRunning);
    this.#changed();
  }

  /** Forget what was sent. @param {any} sent */
  drop(sent) {
    drop(this.key, sent);
    this.#changed();
  }

  stop() {
    return gateway.call('chat.abort', { sessionKey: this.key });
  }

  /** Change a setting of the session. @param {'model' | 'thinkingLevel'} field @param {string} value */
  async patch(field, value) {
    // A session is stored when something is said in it, or chosen for it.
    const [method, agentId] = this.row ? ['sessions.patch'] : ['sessions.create', this.key.split(':')[1]];
    try {
      await gateway.call(method, { key: this.key, agentId, [field]: value });
    } catch (error) {
      this.#fail(error);
      this.#changed();
    }
  }

  /** Say why a call failed; a lost connection is shown elsewhere. */
  #fail(/** @type {any} */ error) {
    if (error.code !== 'OFFLINE') this.problem = error.message;
  }

  #clear() {
    for (const held of [this.#bySeq, this.#groups, this.#groupOf, this.results, this.output]) held.clear();
    this.#last = 0;
  }

  #add(/** @type {any[]} */ messages) {
    for (const message of messages) {
      const { seq } = message.__openclaw;
      const group = Math.floor(seq / PAGE);
      this.#bySeq.set(seq, message);
      this.#last = Math.max(this.#last, seq);
      this.#touch(group);
      if (message.role === 'user') this.#settle(message);
      if (message.role === 'assistant') {
        for (const part of message.content) if (part.type === 'toolCall') this.#groupOf.set(part.id, group);
      }
      if (message.role === 'toolResult') {
        this.results.set(message.toolCallId, message);
        this.output.delete(message.toolCallId);
      }
    }
    // A result is shown with its call, which may be in another group.
    for (const message of messages) this.#touch(this.#groupOf.get(message.toolCallId));
  }

  /** Have a group rendered again. */
  #touch(/** @type {number | undefined} */ id) {
    if (id === undefined) return;
    const seqs = Array.from({ length: PAGE }, (_, index) => id * PAGE + index);
    const messages = seqs.map((seq) => this.#bySeq.get(seq)).filter((each) => each && each.role !== 'toolResult');
    this.#groups.set(id, { id, messages });
  }

  /** A message of a person is stored: it is no longer pending. */
  #settle(/** @type {any} */ message) {
    const isSent = (/** @type {any} */ each) =>
      message.idempotencyKey === `${each.id}:user`
      || (textOf(message).trim() === each.text.trim() && message.timestamp > each.at - 60_000);
    const index = this.pending.findIndex(isSent);
    if (index >= 0) unseen.set(this.key, this.pending.toSpliced(index, 1));
  }

  /** @param {any} row @param {boolean} isRunning Whether a turn runs that no client asked for. */
  #takeRow(row, isRunning = false) {
    this.row = row;
    this.#run(isRunning || (row?.hasActiveRun ?? false));
  }

  /** Calls without a result look different once nothing runs. */
  #run(/** @type {boolean} */ isRunning) {
    if (isRunning === this.isRunning) return;
    this.isRunning = isRunning;
    if (!isRunning) this.output.clear();
    for (const [call, group] of this.#groupOf) if (!this.results.has(call)) this.#touch(group);
  }

  #takeMessage(/** @type {any} */ payload) {
    if (payload.sessionId !== this.sessionId || payload.messageSeq > this.#last + 1) {
      this.load();
      return;
    }
    if (payload.message.role === 'assistant') this.streaming = '';
    this.#takeRow(payload.session, this.isRunning);
    this.#add([payload.message]);
    this.#changed();
  }

  #takeTool(/** @type {any} */ { toolCallId, partialResult, result }) {
    const content = (partialResult ?? result)?.content ?? [];
    const text = content.map((part) => part.text ?? '').join('');
    this.#startCall(toolCallId, text.slice(-MAX_CHARS));
    this.#changed();
  }

  #startCall(/** @type {string} */ id, output = this.output.get(id) ?? '') {
    this.output.set(id, output);
    this.#touch(this.#groupOf.get(id));
  }

  #takeChat(/** @type {any} */ { state, runId, message, errorMessage }) {
    this.#run(state === 'status' || state === 'delta');
    const text = state === 'delta' ? textOf(message) : '';
    const shown = text.length > MAX_STREAMING ? CUT_START + text.slice(-MAX_STREAMING) : text;
    this.streaming = state === 'delta' ? shown : state === 'status' ? this.streaming : '';
    if (state === 'error') this.problem = errorMessage || 'The turn failed.';
    if (state === 'aborted') this.problem = 'Stopped.';
    if (!this.isRunning) unseen.set(this.key, this.pending.filter((each) => each.id !== runId));
    this.#changed();
  }

  #takeChange(/** @type {any} */ { session, reason, phase }) {
    if (['new', 'reset', 'delete'].includes(reason)) {
      this.load();
      return;
    }
    this.#takeRow(session, phase === 'start' || reason === 'agent.run.started');
    this.#changed();
  }
}
