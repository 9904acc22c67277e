/** Who decides about a call, who has voted, and how many are missing. */
import { useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import type { AudienceView, ReviewView, SharedTurn, VoteView } from "../api/schema";
import { notice } from "../page/notice";
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
        {mayDecide ? "You may decide, as one of: " : "Others decide: "}
        <VisibleText text={audienceText(review.audience)} />
        {review.not_requester && ", but not the person who asked"}. {missingText(review)}
      </p>
      {review.votes.length > 0 && (
        <ul aria-label="Votes">
          {review.votes.map((vote) => (
            <Vote key={vote.voter} vote={vote} />
          ))}
        </ul>
      )}
      {review.on_expiry === "escalate" && review.escalate_to && (
        <p class="muted">
          If its time runs out, the group <VisibleText text={review.escalate_to} /> decides.
        </p>
      )}
      {review.on_expiry === "hold" && <p class="muted">It waits on when its time has run out.</p>}
      {review.share_conversation && mayDecide && <Conversation approval={approval} />}
      {review.share_conversation && !mayDecide && (
        <p class="muted">Those who decide may read this conversation.</p>
      )}
    </div>
  );
}

function Vote({ vote }: { vote: VoteView }) {
  return (
    <li title={fullDate(vote.at)}>
      <VisibleText text={vote.voter_name ?? vote.voter} /> said {vote.approved ? "yes" : "no"},{" "}
      {ago(vote.at)}
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
        .catch((error: unknown) => (notice.value = errorText(error)));
    };
    return (
      <button type="button" class="quiet" onClick={load}>
        Read the conversation
      </button>
    );
  }
  return (
    <section aria-label="Conversation">
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
  const votes = missing === 1 ? "1 yes is missing" : `${missing} are missing`;
  return quorum === 1 ? "One yes is enough." : `It needs ${quorum} yes: ${votes}. A no rejects it.`;
}

function audienceText({ roles, groups, users }: AudienceView): string {
  const named = (word: string, names: readonly string[]): string[] =>
    names.length ? [`${word}${names.length > 1 ? "s" : ""} ${names.join(", ")}`] : [];
  return [...named("role", roles), ...named("group", groups), ...named("user", users)].join("; ");
}
