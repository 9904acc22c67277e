/** Server-sent events out of bytes. Knows the format, not what the events say. */

export interface RawFrame {
  /** Empty for what is not in the log. */
  id: string;
  event: string;
  data: string;
}

const LINE_END = /\r\n|\n|\r/;

/** Takes the bytes of a stream in any pieces, and returns whole frames. */
export class FrameParser {
  private readonly decoder = new TextDecoder();
  private rest = "";
  private frame: RawFrame = { id: "", event: "", data: "" };
  private hasData = false;

  push(bytes: Uint8Array): RawFrame[] {
    const text = this.rest + this.decoder.decode(bytes, { stream: true });
    // A carriage return at the end may be the first half of a line end.
    const whole = text.endsWith("\r") ? text.slice(0, -1) : text;
    const lines = whole.split(LINE_END);
    this.rest = (lines.pop() ?? "") + text.slice(whole.length);
    const found: RawFrame[] = [];
    for (const line of lines) {
      if (line !== "") {
        this.take(line);
      } else if (this.hasData) {
        found.push(this.frame);
        this.begin();
      } else {
        this.begin();
      }
    }
    return found;
  }

  private begin(): void {
    this.frame = { id: "", event: "", data: "" };
    this.hasData = false;
  }

  private take(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
    if (field === "id") this.frame.id = value;
    else if (field === "event") this.frame.event = value;
    else if (field === "data") {
      this.frame.data = this.hasData ? `${this.frame.data}\n${value}` : value;
      this.hasData = true;
    }
  }
}
