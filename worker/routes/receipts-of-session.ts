/** The receipts of a session with the keys that verify them: what a revoked host signed since then shows. */
import type { OwnSession } from '../calls/own-session.ts';
import type { Env } from '../env.ts';
import { revokedAtMsOf } from '../links/revoked-hosts.ts';
import { unwrap } from '../middleware/refusal.ts';
import { SAFE } from '../objects/object-calls.ts';
import type { ReceiptExport, ReceiptPage } from '../objects/session/port.ts';

export async function receiptsOf(
  env: Env,
  { call, caller }: OwnSession,
  page: ReceiptPage,
): Promise<ReceiptExport> {
  const found = unwrap(await call((stub) => stub.receipts(caller, page), SAFE));
  const hosts = await Promise.all(
    found.keys.hosts.map(async (key) => {
      const revokedAtMs = unwrap(await revokedAtMsOf(env, key.host_id));
      // What was signed in the second of the revocation may have been before it.
      return { ...key, revoked_at: revokedAtMs === null ? null : Math.ceil(revokedAtMs / 1_000) };
    }),
  );
  return { ...found, keys: { ...found.keys, hosts } };
}
