/** The user's chats: found, grouped by date, and put aside. */
import type { Place } from "../api/endpoints";
import * as chatList from "../chat/chatlist";
import * as inbox from "../inbox/inbox";
import { isInboxOpen } from "../page/dialogs";
import { isMenuOpen, newChat } from "../page/openchat";
import { emptyBin } from "../page/places";
import { t } from "../text/language";
import { ActivityButton } from "./activity";
import { AuditButton } from "./audit";
import { ChatEntries } from "./chatentries";
import { Icon, IconButton } from "./icon";
import { Mark } from "./mark";
import { PersonButton } from "./person";

const nameOf = (place: Place): string =>
  ({ list: t("Chats"), archive: t("Archive"), bin: t("Bin") })[place];
const emptyText = (place: Place): string =>
  ({
    list: t("No chats yet. What you say first becomes the title of a chat."),
    archive: t("The archive is empty. A chat that is done can be put here from its menu."),
    bin: t("The bin is empty."),
  })[place];

export function Sidebar() {
  const { chats, query, place, isLoaded, problem } = chatList;
  return (
    <nav class="sidebar" aria-label={t("Chats")} data-open={isMenuOpen.value}>
      <div class="sidebar-head">
        <span class="brand">
          <Mark /> Teal Agents
        </span>
        <IconButton
          icon="cross"
          label={t("Close menu")}
          class="only-narrow"
          onClick={() => (isMenuOpen.value = false)}
        />
      </div>
      <button type="button" class="primary wide-button" onClick={newChat}>
        <Icon name="plus" /> {t("New chat")}
      </button>
      <label class="search">
        <Icon name="search" />
        <span class="unseen">{t("Find a chat")}</span>
        <input
          id="search"
          type="search"
          placeholder={t("Find a chat")}
          value={query.value}
          onInput={(event) => chatList.search(event.currentTarget.value)}
        />
      </label>
      {chatList.tags.value.length > 0 && <TagFilter />}
      {place.value !== "list" && <PlaceHead place={place.value} />}
      {problem.value && (
        <p class="problem list-problem" role="status">
          {problem.value} {t("This list may be out of date.")}
        </p>
      )}
      <div class="chats" role="region" aria-label={nameOf(place.value)} tabIndex={0}>
        <ChatEntries />
        {isLoaded.value && chats.value.length === 0 && chatList.pinned.value.length === 0 && (
          <p class="empty">
            {query.value
              ? t("No chat contains this text.")
              : chatList.tag.value
                ? t("No chat here has this tag.")
                : emptyText(place.value)}
          </p>
        )}
        {chatList.hasMore.value && (
          <button type="button" class="quiet" onClick={() => void chatList.loadMore()}>
            {t("More")}
          </button>
        )}
      </div>
      <div class="sidebar-foot">
        <div class="row">
          <button
            type="button"
            class="quiet inbox-button"
            onClick={() => (isInboxOpen.value = true)}
          >
            <Icon name="bell" /> {t("Inbox")}
            {inbox.count.value > 0 && <span class="count">{inbox.count.value}</span>}
          </button>
          <IconButton
            icon="archive"
            label={t("Archive")}
            onClick={() => chatList.showPlace("archive")}
          />
          <IconButton icon="trash" label={t("Bin")} onClick={() => chatList.showPlace("bin")} />
        </div>
        <ActivityButton />
        <AuditButton />
        <PersonButton />
      </div>
    </nav>
  );
}

/** So many tags are shown to choose from. */
const MAX_TAGS = 12;

function TagFilter() {
  const { tag, tags } = chatList;
  const shown = tags.value.slice(0, MAX_TAGS);
  if (tag.value && !shown.includes(tag.value)) shown.push(tag.value);
  return (
    <div class="tag-choices" role="group" aria-label={t("Only chats with a tag")}>
      {shown.map((name) => (
        <button
          key={name}
          type="button"
          class="tag"
          aria-pressed={tag.value === name}
          onClick={() => chatList.showTag(name)}
        >
          {name}
        </button>
      ))}
    </div>
  );
}

function PlaceHead({ place }: { place: Place }) {
  return (
    <div class="place-head">
      <button type="button" class="quiet" onClick={() => chatList.showPlace("list")}>
        <Icon name="left" /> {t("All chats")}
      </button>
      <span>{nameOf(place)}</span>
      {place === "bin" && chatList.chats.value.length > 0 ? (
        <button type="button" class="quiet" onClick={() => void emptyBin()}>
          {t("Empty…")}
        </button>
      ) : (
        <span />
      )}
    </div>
  );
}
