// @ts-check
// Usage: tokens, cost and latency by day, model and agent, as plots and as tables.

import {
  compact, Empty, html, loadStyle, money, Notice, Select, useCall, useEffect, useRef, useState, View,
} from '../parts.js';

const seconds = (ms) => (ms === null ? '–' : `${(ms / 1000).toFixed(1)} s`);
/** What is plotted: its value in a group of answers, how it is shown, and whether values add up. */
const MEASURES = {
  tokens: { of: ({ totals }) => totals.totalTokens, show: compact, adds: true },
  cost: { of: ({ totals }) => totals.totalCost, show: money, adds: true },
  latency: { of: ({ latency }) => latency?.avgMs ?? null, show: seconds, adds: false },
};
const GROUPS = {
  model: { daily: 'modelDaily', all: 'byModel', name: (row) => `${row.provider}/${row.model}` },
  agent: { daily: 'agentDaily', all: 'byAgent', name: (row) => row.agentId },
};
const PERIODS = [['7', '7 days'], ['30', '30 days'], ['90', '90 days'], ['365', 'a year']];
const namesOf = (table) => Object.keys(table).map((name) => [name, name]);
const MAX_SERIES = 6;
const HUES = [14, 210, 140, 45, 280, 330];
const DAY_S = 86_400;

export default function Usage() {
  const [days, setDays] = useState('30');
  const [measure, setMeasure] = useState('tokens');
  const [by, setBy] = useState('model');
  const [zone, setZone] = useState({ mode: 'specific', timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone });
  const { data, error } = useCall('sessions.usage', { days: Number(days), agentScope: 'all', ...zone });
  useEffect(() => { if (error?.message.includes('time zone')) setZone({ mode: 'gateway' }); }, [error]);
  return html`
    <${View} title="Usage">
      <div class="picks">
        <${Select} label="Period" value=${days} onInput=${setDays} options=${PERIODS} />
        <${Select} label="Show" value=${measure} onInput=${setMeasure} options=${namesOf(MEASURES)} />
        <${Select} label="By" value=${by} onInput=${setBy} options=${namesOf(GROUPS)} />
      </div>
      <${Notice} error=${error} />
      ${data ? html`<${Report} data=${data} measure=${measure} by=${by} />`
        : html`<${Empty} data=${error ? [] : null} />`}
    <//>`;
}

function Report({ data, measure, by }) {
  const { totals, aggregates } = data;
  const latency = aggregates.latency;
  const facts = [
    ['Tokens', compact(totals.totalTokens)], ['Cost', money(totals.totalCost)],
    ['Sessions', aggregates.sessionCount], ['Average answer', seconds(latency?.avgMs ?? null)],
    ['95 % of answers', seconds(latency?.p95Ms ?? null)],
  ];
  return html`
    <dl class="figures">${facts.map(([name, value]) => html`
      <div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${totals.missingCostEntries > 0 && html`
      <p class="hint">${totals.missingCostEntries} answers have no known price.</p>`}
    ${totals.totalTokens || latency ? html`
      <${Plot} data=${data} measure=${measure} by=${by} />
      <${Totals} title=${`By ${by}`} rows=${aggregates[GROUPS[by].all].map((row) => [GROUPS[by].name(row), row])} />
      <details><summary>By day and ${by}</summary><${Totals} title="By day"
        rows=${aggregates[GROUPS[by].daily].map((row) => [`${row.date} · ${GROUPS[by].name(row)}`, row])} /></details>`
      : html`<${Empty}>No model has been used in this period.<//>`}`;
}

const COLUMNS = {
  Answers: ({ count }) => count,
  Input: ({ totals }) => compact(totals.input),
  Output: ({ totals }) => compact(totals.output),
  Cached: ({ totals }) => compact(totals.cacheRead),
  Tokens: ({ totals }) => compact(totals.totalTokens),
  Cost: ({ totals }) => money(totals.totalCost),
  Latency: ({ latency }) => seconds(latency?.avgMs ?? null),
};

function Totals({ title, rows }) {
  return html`
    <div class="scroll-x"><table>
      <caption class="unseen">${title}</caption>
      <thead><tr><th>${title}</th>${Object.keys(COLUMNS).map((each) => html`
        <th class="number" key=${each}>${each}</th>`)}</tr></thead>
      <tbody>${rows.map(([name, row]) => html`
        <tr key=${name}><th scope="row">${name}</th>${Object.values(COLUMNS).map((show, index) => html`
          <td class="number" key=${index}>${show(row)}</td>`)}</tr>`)}</tbody>
    </table></div>`;
}

/**
 * Days and, for each name, its value on each of them; names beyond the largest ones are one.
 * @param {any} data @param {string} measure @param {string} by
 */
function series(data, measure, by) {
  const { of, adds } = MEASURES[measure];
  const group = GROUPS[by];
  const days = [];
  const last = Date.parse(`${data.endDate}T00:00:00Z`) / 1000;
  for (let at = Date.parse(`${data.startDate}T00:00:00Z`) / 1000; at <= last; at += DAY_S) days.push(at);
  const bySize = (a, b) => b.totals.totalTokens - a.totals.totalTokens;
  const ranked = data.aggregates[group.all].toSorted(bySize).map(group.name);
  const names = ranked.slice(0, adds && ranked.length > MAX_SERIES ? MAX_SERIES - 1 : MAX_SERIES);
  const found = new Map(names.map((name) => [name, days.map(() => (adds ? 0 : null))]));
  if (adds && ranked.length > names.length) found.set('all others', days.map(() => 0));
  for (const row of data.aggregates[group.daily]) {
    const values = found.get(group.name(row)) ?? found.get('all others');
    const at = (Date.parse(`${row.date}T00:00:00Z`) / 1000 - days[0]) / DAY_S;
    if (values) values[at] = adds ? values[at] + of(row) : of(row);
  }
  return { days, found };
}

function Plot({ data, measure, by }) {
  const place = useRef(null);
  const [problem, setProblem] = useState(null);
  const { days, found } = series(data, measure, by);
  const names = [...found.keys()];
  useEffect(() => {
    let plot = null;
    let isWanted = true;
    const draw = async () => {
      await loadStyle('vendor/uplot-1.6.32.css');
      const { default: uPlot } = await import('../vendor/uplot-1.6.32.js');
      if (!isWanted) return;
      plot?.destroy();
      const values = stacked(days, [...found.values()], measure);
      plot = new uPlot(options(uPlot, measure, names, place.current), values, place.current);
    };
    const resize = new ResizeObserver(() => plot?.setSize({ width: place.current.clientWidth, height: plot.height }));
    const scheme = matchMedia('(prefers-color-scheme: dark)');
    draw().catch(setProblem);
    resize.observe(place.current);
    scheme.addEventListener('change', draw);
    return () => {
      isWanted = false;
      resize.disconnect();
      scheme.removeEventListener('change', draw);
      plot?.destroy();
    };
  }, [data, measure, by]);
  return html`
    <${Notice} error=${problem} />
    <figure class="plot">
      <div ref=${place} class="canvas" aria-hidden="true"></div>
      <figcaption class="row">${names.map((name, index) => html`
        <span key=${name}>
          <svg width="10" height="10" aria-hidden="true">
            <rect width="10" height="10" rx="2" fill=${colour(index)} /></svg> ${name}</span>`)}
      </figcaption>
    </figure>`;
}

const colour = (index) => `hsl(${HUES[index]} 65% 55%)`;

/** What adds up is drawn from the top of the stack down, each part in front of the ones above it. */
function stacked(days, values, measure) {
  if (!MEASURES[measure].adds) return [days, ...values];
  const sums = days.map(() => 0);
  const tops = values.map((each) => each.map((value, index) => { sums[index] += value; return sums[index]; }));
  return [days, ...tops.reverse()];
}

function options(uPlot, measure, names, place) {
  const { show, adds } = MEASURES[measure];
  const { color, borderTopColor } = getComputedStyle(place);
  const axis = { stroke: color, grid: { stroke: borderTopColor, width: 1 }, ticks: { show: false } };
  const paths = adds ? uPlot.paths.bars({ size: [0.7, 40] }) : uPlot.paths.linear();
  const lines = names.map((name, index) => ({
    label: name,
    paths,
    stroke: colour(index),
    fill: adds ? colour(index) : undefined,
    width: adds ? 0 : 2,
    spanGaps: true,
    points: { show: !adds },
  }));
  return {
    width: place.clientWidth,
    height: 260,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), 'UTC'),
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { range: (_plot, low, high) => [low - DAY_S / 2, high + DAY_S / 2] },
      y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.05 : 1] },
    },
    axes: [axis, { ...axis, size: 64, values: (_plot, ticks) => ticks.map(show) }],
    series: [{}, ...(adds ? lines.reverse() : lines)],
  };
}
