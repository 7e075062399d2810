// Entry point of the dashboard.
import { render } from 'preact';
import './style/tokens.css';
import './style/base.css';
import './style/shell.css';
import './style/components.css';
import { Shell } from './shell.tsx';

const root = document.getElementById('app');
if (root) render(<Shell />, root);
