/** What the browser keeps for this page: for good, or as long as the tab is open.
 *
 * A browser may keep nothing, or have no room left. Then the page remembers it until it is left.
 */

class BrowserStorage {
  private readonly unkept = new Map<string, string>();

  /** Asked for at each use: the browser refuses already the name of what it does not allow. */
  constructor(private readonly storage: () => Storage) {}

  get(name: string): string | null {
    return this.unkept.get(name) ?? this.tried((storage) => storage.getItem(name)) ?? null;
  }

  set(name: string, value: string): void {
    // An older value must not come back.
    this.remove(name);
    const isKept = this.tried((storage) => (storage.setItem(name, value), true)) ?? false;
    if (!isKept) this.unkept.set(name, value);
  }

  remove(name: string): void {
    this.unkept.delete(name);
    this.tried((storage) => storage.removeItem(name));
  }

  names(): string[] {
    return [...this.unkept.keys(), ...(this.tried((storage) => Object.keys(storage)) ?? [])];
  }

  private tried<Found>(what: (storage: Storage) => Found): Found | undefined {
    try {
      return what(this.storage());
    } catch {
      return undefined;
    }
  }
}

export const forGood = new BrowserStorage(() => localStorage);
export const forThisTab = new BrowserStorage(() => sessionStorage);
