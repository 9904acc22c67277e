/** Saves a text as a file on the user's computer. */

export function downloadFile(name: string, type: string, text: string): void {
  saveBlob(name, new Blob([text], { type }));
}

export function saveBlob(name: string, blob: Blob): void {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = shownName(name);
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Characters that are not shown can make `exe.txt` of `txt.exe`. */
export function shownName(name: string): string {
  return name.replace(/\p{C}/gu, "");
}
