/** A form that edits the arguments of a call and checks them by the tool's schema. */
import { useEffect, useState } from "preact/hooks";

import { isExact, parsedObject } from "../text/json";
import { t } from "../text/language";

interface Field {
  name: string;
  schema: Record<string, unknown>;
  isRequired: boolean;
}

interface ArgumentFormProps {
  input: string;
  parameters: Record<string, unknown> | undefined;
  isBusy: boolean;
  /** The texts of the two buttons. */
  words?: { send: string; leave: string };
  onApprove: (edited: Record<string, unknown>) => void;
  onCancel: () => void;
}

const usualWords = () => ({ send: t("Approve with these arguments"), leave: t("Back") });

export function ArgumentForm(props: ArgumentFormProps) {
  const [values, setValues] = useState(() => parsedObject(props.input) ?? {});
  const [broken, setBroken] = useState<Record<string, string>>({});
  const [problems, setProblems] = useState<string[]>([]);
  useEffect(() => {
    // The first look loads the validator, and may end after the next one.
    let isCurrent = true;
    void violations(props.parameters, values).then((found) => isCurrent && setProblems(found));
    return () => {
      isCurrent = false;
    };
  }, [values]);
  if (!isExact(props.input)) {
    return <TooExact {...props} />;
  }
  const set = (name: string, value: unknown): void => setValues({ ...values, [name]: value });
  const words = props.words ?? usualWords();
  const complaints = [...Object.values(broken), ...problems];
  return (
    <form
      class="argument-form"
      aria-label={t("Edit arguments")}
      onSubmit={(event) => {
        event.preventDefault();
        if (complaints.length === 0) props.onApprove(values);
      }}
    >
      {fieldsOf(props.parameters, values).map((field) => (
        <Entry
          key={field.name}
          field={field}
          value={values[field.name]}
          onValue={(value) => set(field.name, value)}
          onBroken={(words) => {
            const { [field.name]: _, ...others } = broken;
            setBroken(words ? { ...others, [field.name]: `${field.name}: ${words}` } : others);
          }}
        />
      ))}
      <ul class="problem" role="alert" hidden={complaints.length === 0}>
        {complaints.map((words) => (
          <li key={words}>{words}</li>
        ))}
      </ul>
      <div class="actions">
        <button class="primary" disabled={complaints.length > 0 || props.isBusy}>
          {words.send}
        </button>
        <button type="button" disabled={props.isBusy} onClick={props.onCancel}>
          {words.leave}
        </button>
      </div>
    </form>
  );
}

/** Only the way back: an edit would change the number. */
function TooExact({ words, onCancel }: ArgumentFormProps) {
  return (
    <form class="argument-form" aria-label={t("Edit arguments")}>
      <p class="problem">{t("A number here is too long to be edited in a browser.")}</p>
      <div class="actions">
        <button type="button" onClick={onCancel}>
          {(words ?? usualWords()).leave}
        </button>
      </div>
    </form>
  );
}

interface EntryProps {
  field: Field;
  value: unknown;
  onValue: (value: unknown) => void;
  onBroken: (words: string) => void;
}

function Entry({ field, value, onValue, onBroken }: EntryProps) {
  const label = field.isRequired ? field.name : t("{name} (optional)", { name: field.name });
  const choices = field.schema["enum"];
  if (Array.isArray(choices)) {
    return (
      <label>
        {label}
        <select
          value={String(value)}
          onChange={(e) => onValue(choices[e.currentTarget.selectedIndex])}
        >
          {choices.map((choice) => (
            <option key={String(choice)}>{String(choice)}</option>
          ))}
        </select>
      </label>
    );
  }
  if (field.schema["type"] === "boolean") {
    return (
      <label class="inline">
        <input
          type="checkbox"
          checked={value === true}
          onChange={(e) => onValue(e.currentTarget.checked)}
        />
        {label}
      </label>
    );
  }
  if (field.schema["type"] === "string" && (typeof value === "string" || value === undefined)) {
    return (
      <label>
        {label}
        <textarea
          rows={Math.min(10, String(value ?? "").split("\n").length)}
          value={value ?? ""}
          onInput={(e) => onValue(e.currentTarget.value)}
        />
      </label>
    );
  }
  return <JsonEntry label={label} value={value} onValue={onValue} onBroken={onBroken} />;
}

interface JsonEntryProps extends Omit<EntryProps, "field"> {
  label: string;
}

function JsonEntry({ label, value, onValue, onBroken }: JsonEntryProps) {
  const [text, setText] = useState(() => JSON.stringify(value, null, 2) ?? "");
  const take = (typed: string): void => {
    setText(typed);
    try {
      onValue(typed.trim() === "" ? undefined : JSON.parse(typed));
      onBroken("");
    } catch {
      onBroken(t("is not JSON"));
    }
  };
  return (
    <label>
      {label}
      <textarea
        class="json"
        rows={Math.min(10, text.split("\n").length)}
        value={text}
        onInput={(e) => take(e.currentTarget.value)}
      />
    </label>
  );
}

function fieldsOf(
  parameters: Record<string, unknown> | undefined,
  values: Record<string, unknown>,
): Field[] {
  const properties = (parameters?.["properties"] ?? {}) as Record<string, Record<string, unknown>>;
  const required = new Set((parameters?.["required"] ?? []) as string[]);
  const names = new Set([...Object.keys(properties), ...Object.keys(values)]);
  return [...names].map((name) => ({
    name,
    schema: properties[name] ?? {},
    isRequired: required.has(name),
  }));
}

async function violations(
  parameters: Record<string, unknown> | undefined,
  values: Record<string, unknown>,
): Promise<string[]> {
  if (!parameters) return [];
  const { Validator } = await import("@cfworker/json-schema");
  const known = JSON.parse(JSON.stringify(values)) as object;
  const { errors } = new Validator(parameters, "2020-12", false).validate(known);
  const leaves = errors.filter((error) => error.keyword !== "properties");
  return [
    ...new Set(leaves.map((e) => `${e.instanceLocation.slice(2) || t("arguments")}: ${e.error}`)),
  ];
}
