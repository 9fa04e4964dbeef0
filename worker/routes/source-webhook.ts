/** Where who publishes a manifest says that it changed, signed by the Standard Webhooks specification. */
import { failure } from '../../shared/errors.ts';
import { MAX_BODY_BYTES } from '../../shared/limits.ts';
import { notFound } from '../calls/own-session.ts';
import { JSON_MEDIA_TYPE } from '../middleware/body.ts';
import { Refusal, unwrap } from '../middleware/refusal.ts';
import { sourceCalls, UNSAFE } from '../objects/object-calls.ts';
import { emptyReply } from '../routing/reply.ts';
import { defineRoute } from '../routing/route.ts';
import { WEBHOOK_PATH } from '../sources/shown.ts';
import { ownerOfHandle } from '../sources/webhook.ts';

const MAX_HEADER_CHARACTERS = 1_024;

export const sourceWebhook = defineRoute({
  method: 'POST',
  path: `${WEBHOOK_PATH}/{handle}`,
  operationId: 'pushToolSource',
  summary:
    'A signed message that the manifest of a source changed; with `data.tools`, the manifest itself, else it is fetched',
  access: { kind: 'public' },
  headers: {
    'webhook-id': 'Of the message; the same once more does nothing.',
    'webhook-timestamp': 'When it was sent, in seconds; at most five minutes away.',
    'webhook-signature': '`v1,` and the HMAC-SHA-256 of id, time and body in base64; several with spaces.',
  },
  raw: { mediaTypes: [JSON_MEDIA_TYPE], maxBytes: MAX_BODY_BYTES },
  answers: { 204: { description: 'Taken' } },
  errors: ['not_found', 'unauthenticated'],
  handle: async ({ request, env, configuration }, { params, raw }) => {
    const owner = await ownerOfHandle(configuration.tagKey, params.handle);
    if (owner === undefined) throw notFound('no such address of a tool source');
    const [id, timestamp, signature] = ['id', 'timestamp', 'signature'].map((name) => {
      const value = request.headers.get(`webhook-${name}`) ?? '';
      if (value === '' || value.length > MAX_HEADER_CHARACTERS)
        throw new Refusal(failure('unauthenticated', `the header webhook-${name} is missing or too long`));
      return value;
    });
    const headers = { id: id ?? '', timestamp: timestamp ?? '', signature: signature ?? '' };
    const push = { headers, body: raw.bytes };
    unwrap(await sourceCalls(env, owner)((stub) => stub.push(owner, push), UNSAFE));
    return emptyReply();
  },
});
