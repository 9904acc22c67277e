/** Documents that run in a frame of their own: without an origin, without a network. */

/** What the server serves for it; its policy is in the server's `http/page.py`. */
export const ARTIFACT_FRAME = "/frames/artifact";

/** A whole document, whatever part of one was written. */
export function artifactDocument(text: string): string {
  if (/^\s*(?:<!doctype|<html)/i.test(text)) return text;
  return `<!doctype html><meta charset="utf-8"><body style="margin:12px;font:16px/1.5 system-ui">${text}`;
}
