/** What a link says to whoever may let its guest sleep. */
export interface Wakefulness {
  /** Called before anything goes to the guest: it must be able to take it when this returns. */
  touch(): void;
  /** The guest stays awake until the returned function is called; calling that again does nothing. */
  hold(): () => void;
  /** While the guest is kept from running: settles when it runs again. No answer of it is late meanwhile. */
  readonly standing: Promise<void> | undefined;
}

/** Of a guest that never sleeps. */
export const ALWAYS_AWAKE: Wakefulness = {
  touch: () => undefined,
  hold: () => () => undefined,
  standing: undefined,
};
