// @ts-check
// Doctor: what is wrong with this installation, and what to do about it.

import { Badge, Button, Empty, html, Notice, Time, useCall, View } from '../parts.js';

const KINDS = { ok: 'good', warn: 'warn', error: 'bad' };

/** @param {number} count @param {string} what */
const counted = (count, what) => `${count} ${what}${count === 1 ? '' : 's'}`;

export default function Doctor() {
  const { data, error, reload } = useCall('doctor.run');
  const counts = { error: 0, warn: 0, ok: 0 };
  for (const { level } of data?.findings ?? []) counts[level] += 1;
  const sections = Map.groupBy(data?.findings ?? [], (each) => each.section);
  return html`
    <${View} title="Doctor" actions=${html`<${Button} onClick=${reload}>Check again<//>`}>
      <${Notice} error=${error} />
      ${data ? html`
        <p role="status">${counted(counts.error, 'error')}, ${counted(counts.warn, 'warning')}, ${
          counted(counts.ok, 'check')} passed ·${' '}<${Time} at=${data.ts} /></p>
        ${[...sections].map(([name, findings]) => html`
          <section class="card" key=${name} aria-label=${name}>
            <h2>${name}</h2>
            <ul class="findings">${findings.map((each, index) => html`
              <li key=${index}><${Badge} kind=${KINDS[each.level]}>${each.level}<//>
                <div><div class="plain">${each.what}</div>
                  ${each.do && html`<div class="plain soft">→ ${each.do}</div>`}</div></li>`)}
            </ul>
          </section>`)}` : !error && html`<${Empty}>Checking this installation…<//>`}
    <//>`;
}
