/** Files that are dropped anywhere on the page: without this the browser leaves the page for them. */
import { signal } from "@preact/signals";

/** Dropped, and not attached to the message yet. */
export const dropped = signal<File[]>([]);
/** Files are being dragged over the page. */
export const isDragging = signal(false);

export function listenToDrops(): void {
  window.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    isDragging.value = true;
  });
  window.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) isDragging.value = false;
  });
  window.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    isDragging.value = false;
    dropped.value = [...(event.dataTransfer?.files ?? [])];
  });
}

const hasFiles = (event: DragEvent): boolean =>
  event.dataTransfer?.types.includes("Files") ?? false;
