// Runs: not built; it is not in the rail until this is a `View`.
import type { View } from '../view.ts';

export const runs: View | undefined = undefined;
