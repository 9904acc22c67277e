/** The list of keyboard shortcuts. */
import { isHelpOpen } from "../page/dialogs";
import { SHORTCUTS } from "../page/keyboard";
import { phrase, t } from "../text/language";
import { Dialog } from "./dialog";

export function Shortcuts() {
  if (!isHelpOpen.value) return null;
  return (
    <Dialog title={t("Keyboard")} onClose={() => (isHelpOpen.value = false)}>
      <ShortcutTable />
    </Dialog>
  );
}

export function ShortcutTable() {
  return (
    <>
      <table class="keys">
        <tbody>
          {SHORTCUTS.map(({ keys, what }) => (
            <tr key={keys}>
              <th scope="row">
                <kbd>{keys}</kbd>
              </th>
              <td>{what()}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="muted">
        {phrase(
          "No key approves a call directly: go to the call with {key}, read it, then press its button.",
          { key: <kbd>a</kbd> },
        )}
      </p>
    </>
  );
}
