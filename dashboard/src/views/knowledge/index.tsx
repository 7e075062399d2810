// Knowledge: not built; it is not in the rail until this is a `View`.
import type { View } from '../view.ts';

export const knowledge: View | undefined = undefined;
