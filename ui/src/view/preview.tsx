/** What a call would change, as the server saw it when it requested the approval. */
import type { TableView } from "../api/schema";
import type { ApprovalRequest } from "../chat/run";
import { phrase, plural, t } from "../text/language";
import { patchOf } from "../text/patch";
import { Changes } from "./difference";
import { LongText } from "./longtext";
import { VisibleText } from "./visibletext";

/** A table or a picture that the tool made of what it would do. */
export function ShownPreview({ approval }: { approval: ApprovalRequest }) {
  const { preview_table: table, preview_picture: picture } = approval;
  if (!table && !picture) return null;
  return (
    <div class="preview">
      <h3 class="label">{t("What it would do, by the tool’s own account")}</h3>
      {table && <PreviewTable table={table} />}
      {picture && <img src={picture} alt={t("Picture of what the call would do")} />}
      <p class="fine">
        {t("As it was when the approval was requested.")}{" "}
        {t("Your decision is about the arguments.")}
      </p>
    </div>
  );
}

function PreviewTable({ table }: { table: TableView }) {
  return (
    <>
      <div
        class="preview-table"
        tabIndex={0}
        role="region"
        aria-label={t("Table of what the call would do")}
      >
        <table>
          <thead>
            <tr>
              {table.columns.map((name, at) => (
                <th key={at} scope="col">
                  <VisibleText text={name} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {table.rows.map((row, at) => (
              <tr key={at}>
                {row.map((cell, column) => (
                  <td key={column}>
                    <VisibleText text={cell} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {table.more > 0 && (
        <p class="fine">{plural(table.more, "{count} more row", "{count} more rows")}</p>
      )}
    </>
  );
}

export function Preview({ text }: { text: string }) {
  const patch = patchOf(text);
  return (
    <div class="preview">
      <h3 class="label">
        {patch
          ? phrase("What it would change in {file}", {
              file: (
                <code>
                  <VisibleText text={patch.file} />
                </code>
              ),
            })
          : t("What it would change")}
      </h3>
      {patch ? <Changes lines={patch.lines} /> : <LongText text={text} label={t("Preview")} />}
      <p class="fine">{t("As it was when the approval was requested.")}</p>
    </div>
  );
}
