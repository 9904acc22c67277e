/** A file that the user sent: a text is closed until it is opened, a PDF is saved. */
import type { Item, ItemView } from "../api/schema";
import { saveBlob } from "../page/download";
import { numberText, plural, t } from "../text/language";
import { Icon } from "./icon";
import { LongText } from "./longtext";

export function SentFile({ item }: { item: Item | ItemView }) {
  const name = item.name ?? t("file");
  if (item.content_type === "pdf") {
    const save = (): void => {
      const bytes = Uint8Array.from(
        atob(item.content.slice(item.content.indexOf(",") + 1)),
        (one) => one.charCodeAt(0),
      );
      saveBlob(name, new Blob([bytes], { type: "application/pdf" }));
    };
    return (
      <button type="button" class="sent-file" title={t("Save")} onClick={save}>
        <Icon name="clip" /> {name} <Size bytes={bytesOf(item.content)} />
      </button>
    );
  }
  return (
    <details class="sent-file">
      <summary>
        <Icon name="clip" /> {name} <Size bytes={item.content.length} />
      </summary>
      <LongText text={item.content} label={name} />
    </details>
  );
}

const Size = ({ bytes }: { bytes: number }) => <span class="muted">{sizeText(bytes)}</span>;

/** Of a data URI in base64. */
const bytesOf = (uri: string): number => Math.floor((uri.length - uri.indexOf(",") - 1) * 0.75);

export const sizeText = (bytes: number): string =>
  bytes < 10_000
    ? plural(bytes, "{count} byte", "{count} bytes")
    : `${numberText(Math.round(bytes / 1000))} kB`;
