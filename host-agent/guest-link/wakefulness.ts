/** What a link says to whoever may let its guest sleep. */
export interface Wakefulness {
  /** Called before anything goes to the guest: it must be able to take it when this returns. */
  touch(): void;
  /** The guest stays awake until the returned function is called; calling that again does nothing. */
  hold(): () => void;
}

/** Of a guest that never sleeps. */
export const ALWAYS_AWAKE: Wakefulness = { touch: () => undefined, hold: () => () => undefined };
