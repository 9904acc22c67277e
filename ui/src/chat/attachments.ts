/** Attached files in the form that the server takes. */
import type { Item } from "../api/schema";
import { t } from "../text/language";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MB = 1024 * 1024;
const MAX_PICTURE = 8 * MB;
const MAX_PDF = 8 * MB;
const MAX_TEXT = 2 * MB;
const MAX_ITEMS = 32;
/** Of all that one message carries: the server's limit of a request, less what surrounds them. */
const MAX_TOGETHER = 11.5 * MB;

export interface Attached {
  items: Item[];
  problem: string;
}

/** The files as items beside those that the message has already, and why others are not. */
export async function itemsOf(files: Iterable<File>, already: Item[]): Promise<Attached> {
  const items: Item[] = [];
  const problems: string[] = [];
  let size = sizeOf(already);
  for (const file of files) {
    const name = file.name.slice(0, 255) || t("pasted");
    const item = await itemOf(file, name);
    if (typeof item === "string") problems.push(item);
    else if (already.length + items.length >= MAX_ITEMS) {
      problems.push(t("{name}: a message takes {count} files.", { name, count: MAX_ITEMS }));
    } else if ((size += sizeOf([item])) > MAX_TOGETHER) {
      size -= sizeOf([item]);
      problems.push(t("{name}: a message takes 12 MB of files in all.", { name }));
    } else items.push(item);
  }
  return { items, problem: problems.join(" ") };
}

/** The file as an item, or why it is none. */
async function itemOf(file: File, name: string): Promise<Item | string> {
  if (PICTURES.includes(file.type)) {
    if (file.size > MAX_PICTURE) return t("{name} is larger than 8 MB.", { name });
    return { content_type: "image", content: await dataUri(file), name };
  }
  if (file.type === "application/pdf" || /\.pdf$/i.test(name)) {
    if (file.size > MAX_PDF) return t("{name} is larger than 8 MB.", { name });
    const pdf = new File([file], name, { type: "application/pdf" });
    return { content_type: "pdf", content: await dataUri(pdf), name };
  }
  if (file.size > MAX_TEXT) return t("{name} is larger than 2 MB.", { name });
  const text = await file.text();
  if (text.includes("\0") || !text.trim()) {
    return t("{name} is neither a picture, a PDF nor text.", { name });
  }
  return { content_type: "text", content: text, name };
}

const sizeOf = (items: Item[]): number => items.reduce((sum, item) => sum + item.content.length, 0);

function dataUri(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error ?? new Error(t("The file cannot be read.")));
    reader.readAsDataURL(file);
  });
}
