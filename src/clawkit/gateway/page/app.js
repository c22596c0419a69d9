// The page: navigation, and the view that the address names, or the login. A view is loaded when opened.

import { EVENTS } from './approval.js';
import { gateway } from './client.js';
import {
  Button, Component, html, Icon, link, loadStyle, Notice, render, useCall, useEffect, useGateway, useState,
} from './parts.js';

/**
 * The views, in the order of the navigation: the name of its module, whose default export is a component
 * that gets `path`, the parts of the address after the name; its title; the scope that it needs; the lines
 * of an icon of 24 by 24.
 */
const VIEWS = [
  ['chat', 'Chat', 'read', 'M4 5h16v11H9l-5 4z'],
  ['sessions', 'Sessions', 'read', 'M4 6h5l2 2h9v10H4z'],
  ['jobs', 'Jobs', 'read', 'M12 4a8 8 0 1 1 0 16 8 8 0 0 1 0-16M12 8v4l3 2'],
  ['approvals', 'Approvals', 'approvals', 'M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6zM9 12l2 2 4-4'],
  ['policy', 'Policy', 'read', 'M4 6h16M4 12h10M4 18h6M18 15v6M15 18h6'],
  ['agents', 'Agents', 'read', 'M12 4a4 4 0 1 1 0 8 4 4 0 0 1 0-8M5 20c0-4 3-6 7-6s7 2 7 6'],
  ['devices', 'Devices', 'pairing', 'M3 5h13v9H3zM7 18h5M18 9h4v10h-4z'],
  ['usage', 'Usage', 'read', 'M4 20V4M4 20h16M8 16v-4M12 16V8M16 16v-6'],
  ['config', 'Configuration', 'read', 'M4 7h10M18 7h2M14 5v4M4 17h2M10 17h10M10 15v4'],
  ['logs', 'Logs', 'read', 'M5 4h14v16H5zM8 9h8M8 13h8M8 17h4'],
  ['doctor', 'Doctor', 'admin', 'M12 5v14M5 12h14'],
].map(([name, title, scope, icon]) => ({ name, title, scope, icon }));

/** The address as a list: `#/chat/main` is `['chat', 'main']`. */
function usePath() {
  const read = () => location.hash.replace(/^#\/?/, '').split('/').map(decode);
  const [path, setPath] = useState(read);
  useEffect(() => {
    const change = () => setPath(read());
    addEventListener('hashchange', change);
    return () => removeEventListener('hashchange', change);
  }, []);
  return path;
}

function decode(/** @type {string} */ part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Shows an error of a view in its place, so that the rest of the page goes on. */
class Boundary extends Component {
  state = { error: null };

  componentDidCatch(/** @type {Error} */ error) {
    this.setState({ error });
  }

  render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return html`<div class="content"><${Notice} error=${error} />
      <${Button} onClick=${() => this.setState({ error: null })}>Try again<//></div>`;
  }
}

function Opened({ view: { name }, path }) {
  const [{ shown, View, error }, setLoaded] = useState({ shown: '' });
  useEffect(() => {
    let wanted = true;
    const load = async () => {
      if (name !== 'chat') await loadStyle('views.css');
      return { View: (await import(`./views/${name}.js`)).default };
    };
    load().catch((problem) => ({ error: problem })).then((found) => wanted && setLoaded({ shown: name, ...found }));
    return () => { wanted = false; };
  }, [name, gateway.state]); // what could not be loaded may be there after a reconnect
  if (shown !== name) return html`<p class="empty">Loading…</p>`;
  if (error) return html`<div class="content"><${Notice} error=${error} /></div>`;
  return html`<${Boundary} key=${name}><${View} path=${path} /><//>`;
}

/** The path of the view that was open last, for those that are opened again there. */
const last = gateway.remember();

function Navigation({ views, current }) {
  const pending = useCall(gateway.may('approvals') ? 'exec.approval.list' : null, {}, EVENTS).data?.length;
  const config = useCall('health', {}, ['config.changed']).data?.config;
  /** What is shown beside a title, and in words. */
  const marks = {
    approvals: pending > 0 && [pending, `${pending} pending`],
    config: config && (config.valid ? config.restartNeeded.length > 0 && ['↻', 'needs a restart'] : ['!', 'invalid']),
  };
  // On phones, not all views fit.
  useEffect(() => {
    document.querySelector('nav [aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [current]);
  return html`
    <nav aria-label="Views">
      <a class="brand" href="#/chat"><img src="icon.svg" alt="" width="24" height="24" />clawkit</a>
      ${views.map((view) => html`
        <a key=${view.name} href=${link(view.name, ...(last.get(view.name) ?? []))}
          aria-current=${view === current ? 'page' : null}>
          <${Icon} d=${view.icon} />${view.title}
          ${marks[view.name] && html`<span class="badge warn" role="img" title=${marks[view.name][1]}
            aria-label=${marks[view.name][1]}>${marks[view.name][0]}</span>`}
        </a>`)}
      <div class="grow"></div>
      <${Button} kind="plain" onClick=${() => gateway.logout()}>Log out<//>
    </nav>`;
}

function App() {
  const { state } = useGateway();
  const [name, ...path] = usePath();
  const [entered, setEntered] = useState(false);
  const isStranger = ['login', 'pairing', 'insecure'].includes(state);
  useEffect(() => setEntered(state === 'ready' || (entered && !isStranger)), [state]);
  if (isStranger) return html`<${Opened} view=${{ name: 'login' }} />`;
  const retry = html`<${Button} onClick=${() => gateway.retry()}>Retry now<//>`;
  if (!entered) {
    return html`<main class="empty" id="main"><p role="status">
      ${state === 'offline' ? html`The gateway cannot be reached. Trying again… ${retry}` : 'Connecting…'}</p></main>`;
  }
  const views = VIEWS.filter((view) => gateway.may(view.scope));
  const current = views.find((view) => view.name === name) ?? views[0];
  if (name === 'chat') last.set(name, path);
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <${Navigation} views=${views} current=${current} />
    <main id="main" tabindex="-1">
      ${state !== 'ready' && html`
        <div class="notice warn" role="status">Connection lost. Reconnecting… ${retry}</div>`}
      ${current ? html`<${Opened} view=${current} path=${path} />`
        : html`<div class="content"><${Notice} kind="warn">This browser may not see anything.<//></div>`}
    </main>`;
}

function skip(/** @type {Event} */ event) {
  event.preventDefault();
  document.getElementById('main')?.focus();
}

render(html`<${App} />`, document.getElementById('app'));
gateway.start();
