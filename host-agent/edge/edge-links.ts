/** How this host opens links: where, with which headers, and how it proves that it holds its key. */
import { toBase64 } from '../../shared/encoding.ts';
import { proofMessage } from '../../shared/frames.ts';
import { LINK_HEADERS, ROUTES } from '../../shared/host-api.ts';
import type { HostIdentity } from './enrolment.ts';

export interface LinkTarget {
  url: string;
  headers: () => Record<string, string>;
  prove: (nonce: string) => Promise<string>;
}

export class EdgeLinks {
  readonly #edgeUrl: string;
  readonly #identity: HostIdentity;

  constructor(edgeUrl: string, identity: HostIdentity) {
    this.#edgeUrl = edgeUrl;
    this.#identity = identity;
  }

  control(): LinkTarget {
    return this.#target(ROUTES.controlLink, 'control', {});
  }

  session(session: { sessionId: string; tenant: string; epoch: number }): LinkTarget {
    const { sessionId, tenant, epoch } = session;
    return this.#target(ROUTES.sessionLink, `session:${sessionId}:${epoch}`, {
      [LINK_HEADERS.sessionId]: sessionId,
      [LINK_HEADERS.tenant]: tenant,
      [LINK_HEADERS.epoch]: String(epoch),
    });
  }

  #target(path: string, purpose: string, headers: Record<string, string>): LinkTarget {
    const { certificate, edgeOrigin, hostId, privateKey } = this.#identity;
    const url = new URL(path, this.#edgeUrl);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    return {
      url: url.href,
      headers: () => ({ [LINK_HEADERS.certificate]: `Bearer ${certificate}`, ...headers }),
      prove: async (nonce) => {
        const message = proofMessage({ origin: edgeOrigin, hostId, nonce, purpose });
        return toBase64(new Uint8Array(await crypto.subtle.sign('Ed25519', privateKey, message)));
      },
    };
  }
}
