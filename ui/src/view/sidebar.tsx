/** The user's chats: found, grouped by date, and put aside. */
import type { Place } from "../api/endpoints";
import * as chatList from "../chat/chatlist";
import * as inbox from "../inbox/inbox";
import { isInboxOpen } from "../page/dialogs";
import { isMenuOpen, newChat } from "../page/openchat";
import { emptyBin } from "../page/places";
import { ActivityButton } from "./activity";
import { AuditButton } from "./audit";
import { ChatEntries } from "./chatentries";
import { Icon, IconButton } from "./icon";
import { Mark } from "./mark";
import { PersonButton } from "./person";

const NAMES: Record<Place, string> = { list: "Chats", archive: "Archive", bin: "Bin" };
const EMPTY: Record<Place, string> = {
  list: "No chats yet. What you say first becomes the title of a chat.",
  archive: "The archive is empty. A chat that is done can be put here from its menu.",
  bin: "The bin is empty.",
};

export function Sidebar() {
  const { chats, query, place, isLoaded, problem } = chatList;
  return (
    <nav class="sidebar" aria-label="Chats" data-open={isMenuOpen.value}>
      <div class="sidebar-head">
        <span class="brand">
          <Mark /> Teal Agents
        </span>
        <IconButton
          icon="cross"
          label="Close menu"
          class="only-narrow"
          onClick={() => (isMenuOpen.value = false)}
        />
      </div>
      <button type="button" class="primary wide-button" onClick={newChat}>
        <Icon name="plus" /> New chat
      </button>
      <label class="search">
        <Icon name="search" />
        <span class="unseen">Find a chat</span>
        <input
          id="search"
          type="search"
          placeholder="Find a chat"
          value={query.value}
          onInput={(event) => chatList.search(event.currentTarget.value)}
        />
      </label>
      {place.value !== "list" && <PlaceHead place={place.value} />}
      {problem.value && (
        <p class="problem list-problem" role="status">
          {problem.value} This list may be out of date.
        </p>
      )}
      <div class="chats" role="region" aria-label={NAMES[place.value]} tabIndex={0}>
        <ChatEntries />
        {isLoaded.value && chats.value.length === 0 && chatList.pinned.value.length === 0 && (
          <p class="empty">{query.value ? "No chat contains this text." : EMPTY[place.value]}</p>
        )}
        {chatList.hasMore.value && (
          <button type="button" class="quiet" onClick={() => void chatList.loadMore()}>
            More
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
            <Icon name="bell" /> Inbox
            {inbox.count.value > 0 && <span class="count">{inbox.count.value}</span>}
          </button>
          <IconButton
            icon="archive"
            label="Archive"
            onClick={() => chatList.showPlace("archive")}
          />
          <IconButton icon="trash" label="Bin" onClick={() => chatList.showPlace("bin")} />
        </div>
        <ActivityButton />
        <AuditButton />
        <PersonButton />
      </div>
    </nav>
  );
}

function PlaceHead({ place }: { place: Place }) {
  return (
    <div class="place-head">
      <button type="button" class="quiet" onClick={() => chatList.showPlace("list")}>
        <Icon name="left" /> All chats
      </button>
      <span>{NAMES[place]}</span>
      {place === "bin" && chatList.chats.value.length > 0 ? (
        <button type="button" class="quiet" onClick={() => void emptyBin()}>
          Empty…
        </button>
      ) : (
        <span />
      )}
    </div>
  );
}
