/**
 * The link of a session whose sandbox is being made: dialled beside that, so that the edge hears of the sandbox in the moment
 * that it is there. What comes on it before waits for whoever serves it then.
 */
import type { SessionBinding } from '../execution/grant-check.ts';
import type { Log } from '../logging/log.ts';
import type { EdgeLinks } from './edge-links.ts';
import type { LinkTiming } from './link-socket.ts';
import { SessionLink, type SessionLinkOptions } from './session-link.ts';

export type LinkService = Pick<SessionLinkOptions, 'onCommand' | 'onTransfer' | 'onDown' | 'onFenced'>;

export interface DialledLinkParts {
  links: EdgeLinks;
  log: Log;
  timing?: Partial<LinkTiming>;
}

export class DialledLink {
  readonly link: SessionLink;
  readonly #served = Promise.withResolvers<LinkService>();
  #service: LinkService | undefined;
  #isFenced = false;

  constructor(binding: SessionBinding, { links, log, timing }: DialledLinkParts) {
    this.link = new SessionLink({
      sessionId: binding.sessionId,
      epoch: binding.epoch,
      ...links.session(binding),
      onCommand: async (command) => (await this.#served.promise).onCommand(command),
      // There are none before a sandbox is ready.
      onTransfer: (frame, bytes) => this.#service?.onTransfer(frame, bytes) ?? false,
      onDown: () => this.#service?.onDown(),
      onFenced: () => {
        this.#isFenced = true;
        this.#service?.onFenced();
      },
      log,
      timing,
    });
  }

  dial(): void {
    this.link.connect();
  }

  /** The sandbox is there. */
  serve(service: LinkService): void {
    this.#service = service;
    this.#served.resolve(service);
    if (this.#isFenced) service.onFenced();
  }

  /** There will be no sandbox. */
  hangUp(): void {
    this.link.close();
    this.link.abandon();
  }
}
