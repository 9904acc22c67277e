/** What goes into the `Authorization` header of each request. */
import { signal } from "@preact/signals";

import { forThisTab } from "../page/storage";

export interface Credentials {
  /** Null if none are known. */
  current(): Promise<string | null>;
  /** Others than these, which the server refused; null if there are none. */
  renewed(refused: string): Promise<string | null>;
}

const PASTED = "teal.token";

/** Why the user has to sign in again; null while nothing is wrong. */
export const needsSignIn = signal<string | null>(null);

/** A token or an access key that the user has pasted, kept until the tab is closed. */
export const pasted = {
  current: () => Promise.resolve(forThisTab.get(PASTED)),
  renewed: () => Promise.resolve(null),
  isKnown: () => forThisTab.get(PASTED) !== null,
  save: (token: string) => forThisTab.set(PASTED, token),
  forget: () => forThisTab.remove(PASTED),
} satisfies Credentials & Record<string, unknown>;

let inUse: Credentials = pasted;

export const credentials = (): Credentials => inUse;

export function useCredentials(others: Credentials): void {
  inUse = others;
}
