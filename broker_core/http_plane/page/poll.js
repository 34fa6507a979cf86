// Polling: one request at a time, none while the page is hidden, none after the view is closed.

export class Poll {
  #stop = new AbortController();
  #timers = new Set();

  constructor(failed) {
    this.failed = failed;
  }

  get signal() {
    return this.#stop.signal;
  }

  // Call `look` now and `seconds` after each end. Returns a function that calls it immediately.
  every(seconds, look) {
    let timer = 0;
    let running = false;
    let again = false;
    const turn = async () => {
      this.#timers.delete(timer);
      clearTimeout(timer);
      if (running) {
        again = true;
        return;
      }
      running = true;
      try {
        if (!document.hidden) await look(this.signal);
      } catch (error) {
        if (error.name !== "AbortError") this.failed(error);
      }
      running = false;
      if (this.signal.aborted) return;
      timer = setTimeout(turn, again ? 0 : seconds * 1000);
      again = false;
      this.#timers.add(timer);
    };
    turn();
    return turn;
  }

  stop() {
    this.#stop.abort();
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }
}
