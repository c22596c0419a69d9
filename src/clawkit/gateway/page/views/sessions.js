import { html, View } from '../parts.js';
export default () => html`<${View} title="Sessions"><//>`;
