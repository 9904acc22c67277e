/** Who decides about a call, who has voted, and how many are missing. */
import { useState } from "preact/hooks";

import * as server from "../api/endpoints";
import type { AudienceView, ReviewView, SharedTurn, VoteView } from "../api/schema";
import { complain } from "../page/notice";
import { phrase, plural, t } from "../text/language";
import { ago, fullDate } from "../text/time";
import { VisibleText } from "./visibletext";

interface ReviewProps {
  approval: string;
  review: ReviewView;
  mayDecide: boolean;
}

export function Review({ approval, review, mayDecide }: ReviewProps) {
  return (
    <div class="review">
      <p>
        {mayDecide ? t("You may decide, as one of:") : t("Others decide:")}{" "}
        <VisibleText text={audienceText(review.audience)} />
        {review.not_requester && t(", but not the person who asked")}. {missingText(review)}
      </p>
      {review.votes.length > 0 && (
        <ul aria-label={t("Votes")}>
          {review.votes.map((vote) => (
            <Vote key={vote.voter} vote={vote} />
          ))}
        </ul>
      )}
      {review.on_expiry === "escalate" && review.escalate_to && (
        <p class="muted">
          {phrase("If its time runs out, the group {name} decides.", {
            name: <VisibleText text={review.escalate_to} />,
          })}
        </p>
      )}
      {review.on_expiry === "hold" && (
        <p class="muted">{t("It waits on when its time has run out.")}</p>
      )}
      {review.share_conversation && mayDecide && <Conversation approval={approval} />}
      {review.share_conversation && !mayDecide && (
        <p class="muted">{t("Those who decide may read this conversation.")}</p>
      )}
    </div>
  );
}

function Vote({ vote }: { vote: VoteView }) {
  const name = <VisibleText text={vote.voter_name ?? vote.voter} />;
  return (
    <li title={fullDate(vote.at)}>
      {vote.approved
        ? phrase("{name} said yes, {when}", { name, when: ago(vote.at) })
        : phrase("{name} said no, {when}", { name, when: ago(vote.at) })}
      {vote.message && (
        <>
          : “<VisibleText text={vote.message} />”
        </>
      )}
    </li>
  );
}

function Conversation({ approval }: { approval: string }) {
  const [turns, setTurns] = useState<readonly SharedTurn[] | null>(null);
  if (turns === null) {
    const load = (): void => {
      server
        .approval(approval)
        .then((view) => setTurns(view.conversation ?? []))
        .catch((error: unknown) => complain(error));
    };
    return (
      <button type="button" class="quiet" onClick={load}>
        {t("Read the conversation")}
      </button>
    );
  }
  return (
    <section aria-label={t("Conversation")}>
      {turns.map((turn, place) => (
        <blockquote key={place}>
          <p>
            <VisibleText text={turn.user_message} />
          </p>
          {turn.answer && (
            <p class="muted">
              <VisibleText text={turn.answer} />
            </p>
          )}
        </blockquote>
      ))}
    </section>
  );
}

function missingText(review: ReviewView): string {
  const { missing, quorum } = review;
  if (missing === 0) return "";
  if (quorum === 1) return t("One yes is enough.");
  const votes = plural(missing, "{count} yes is missing", "{count} are missing");
  return t("It needs {quorum} yes: {votes}. A no rejects it.", { quorum, votes });
}

function audienceText({ roles, groups, users }: AudienceView): string {
  const parts = [
    roles.length && plural(roles.length, "role {names}", "roles {names}", list(roles)),
    groups.length && plural(groups.length, "group {names}", "groups {names}", list(groups)),
    users.length && plural(users.length, "user {names}", "users {names}", list(users)),
  ];
  return parts.filter(Boolean).join("; ");
}

const list = (names: readonly string[]) => ({ names: names.join(", ") });
