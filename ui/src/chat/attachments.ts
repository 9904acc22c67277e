/** Attached files in the form that the server takes. */
import type { Item } from "../api/schema";
import { t } from "../text/language";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_PICTURE = 8 * 1024 * 1024;
const MAX_TEXT = 256 * 1024;

export interface Attached {
  items: Item[];
  problem: string;
}

export async function itemsOf(files: Iterable<File>): Promise<Attached> {
  const items: Item[] = [];
  let problem = "";
  for (const file of files) {
    const name = file.name.slice(0, 255) || t("pasted");
    if (PICTURES.includes(file.type)) {
      if (file.size > MAX_PICTURE) problem = t("{name} is larger than 8 MB.", { name });
      else items.push({ content_type: "image", content: await dataUri(file), name });
    } else if (file.size > MAX_TEXT) {
      problem = t("{name} is larger than 256 KB.", { name });
    } else {
      const text = await file.text();
      if (text.includes("\0") || !text.trim())
        problem = t("{name} is neither a picture nor text.", { name });
      else items.push({ content_type: "text", content: text, name });
    }
  }
  return { items, problem };
}

function dataUri(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error ?? new Error(t("The file cannot be read.")));
    reader.readAsDataURL(file);
  });
}
