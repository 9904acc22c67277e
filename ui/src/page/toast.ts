/** A message for some seconds about something that was done, and the way to undo it. */
import { signal } from "@preact/signals";

export interface Toast {
  text: string;
  undo?: () => void;
}

export const toast = signal<Toast | null>(null);

const SHOWN_MS = 10_000;
let timer = 0;

export function showToast(next: Toast): void {
  window.clearTimeout(timer);
  toast.value = next;
  timer = window.setTimeout(dismissToast, SHOWN_MS);
}

export function dismissToast(): void {
  window.clearTimeout(timer);
  toast.value = null;
}
