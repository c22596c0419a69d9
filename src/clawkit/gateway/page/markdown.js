// Markdown to cleaned HTML. The only place where text of others becomes HTML.

import { html, useMemo } from './parts.js';
import './vendor/dompurify-3.4.17.js';
import { Marked } from './vendor/marked-18.2.0.js';

const purify = /** @type {any} */ (globalThis).DOMPurify;
const TAGS = `a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i kbd li ol p pre s strong sub sup table
  tbody td th thead tr ul`.split(/\s+/);
const RULES = {
  ALLOWED_TAGS: TAGS,
  // No class or style: a text must not look like a part of the page.
  ALLOWED_ATTR: ['href', 'title', 'align', 'start'],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_TRUSTED_TYPE: true,
};

/** @param {string} text */
const escape = (text) => text.replace(/[&<>"']/g, (found) => `&#${found.charCodeAt(0)};`);

const marked = new Marked({
  breaks: true,
  gfm: true,
  renderer: {
    // Loading an image of others would tell them who reads, and when. It becomes a link.
    image: ({ href, text }) => `<a href="${escape(href)}">[image] ${escape(text || href)}</a>`,
    // HTML in a text is shown as it was written.
    html: ({ text }) => (/^<br ?\/?>$/i.test(text) ? '<br>' : escape(text)),
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
  },
});

purify.addHook('afterSanitizeAttributes', (/** @type {Element} */ node) => {
  if (node.tagName !== 'A') return;
  node.setAttribute('target', '_blank');
  node.setAttribute('rel', 'noopener noreferrer nofollow');
});

// The parser takes quadratic time for some texts, and a call for each level of nesting.
const MAX_CHARS = 10_000;
const TOO_DEEP = /^(?:[ \t]*(?:[>*+-]|\d{1,9}[.)])){32}/m;

/** Null if the text is better shown as it is. @param {string} text */
function toHtml(text) {
  if (text.length > MAX_CHARS || TOO_DEEP.test(text)) return null;
  try {
    return purify.sanitize(marked.parse(text, { async: false }), RULES);
  } catch {
    return null;
  }
}

/** @param {{text: string}} props */
export function Markdown({ text }) {
  const cleaned = useMemo(() => toHtml(text), [text]);
  if (cleaned === null) return html`<div key="plain" class="plain">${text}</div>`;
  return html`<div key="html" class="markdown" dangerouslySetInnerHTML=${{ __html: cleaned }} />`;
}
