/** Requests to others: only to addresses that a tool may have, and with answers of bounded size. */
import { type AddressRules, addressFault } from './address.ts';

export class AddressRefused extends Error {
  override name = 'AddressRefused';
}

export class AnswerTooLarge extends Error {
  override name = 'AnswerTooLarge';
}

export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

/** Redirects are answers here: who follows one asks again, and is checked again. */
export function boundedFetch(rules: AddressRules, maxBytes: number): Fetch {
  return async (address, init) => {
    const url = new URL(address);
    const fault = addressFault(url, rules);
    if (fault !== undefined) throw new AddressRefused(`the address is refused: expected ${fault}`);
    const response = await fetch(url.href, { ...init, redirect: 'manual' });
    if (response.body === null) return response;
    return new Response(response.body.pipeThrough(counted(maxBytes)), {
      status: response.status,
      statusText: response.statusText,
      headers: response.headers,
    });
  };
}

function counted(maxBytes: number): TransformStream<Uint8Array, Uint8Array> {
  let bytes = 0;
  return new TransformStream({
    transform: (chunk, controller) => {
      bytes += chunk.length;
      if (bytes > maxBytes) controller.error(new AnswerTooLarge(`the answer is over ${maxBytes} bytes`));
      else controller.enqueue(chunk);
    },
  });
}
