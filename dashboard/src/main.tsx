// Entry point of the dashboard.
import { render } from 'preact';
import './style/tokens.css';
import './style/base.css';
import './style/shell.css';
import './style/parts.css';
import { Shell } from './shell.tsx';

const place = document.getElementById('app');
if (place) render(<Shell />, place);
