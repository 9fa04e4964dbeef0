/** Secrets of a deployed edge, and what becomes of signatures when a key gives way to another. */
import { env } from 'cloudflare:workers';
import { describe, expect, test } from 'vitest';
import { newSecrets, rotate, type Secrets } from '../../scripts/production-secrets.ts';
import { importPublicKey } from '../../shared/ed25519.ts';
import { isLiveAt, liveKeys, verifyKeySet } from '../../shared/key-set.ts';
import { type Configuration, readConfiguration } from '../../worker/configuration.ts';

interface Texts {
  KEY_SET_VERSION: string;
  FORMER_KEYS: string;
}

const NOW_S = 1_800_000_000;

function configured(secrets: Secrets, more: Partial<Texts> = {}): Promise<Configuration> {
  const texts = {
    ...env,
    EDGE_ORIGIN: 'https://sandgate.example.com',
    ISSUERS: '[]',
    KEY_SET_VERSION: '1',
    POOLS: '["default"]',
    TENANT_REQUESTS_PER_MINUTE: '600',
    ...secrets,
    ...more,
  };
  return readConfiguration(texts);
}

describe('the secrets of a new edge', () => {
  test('are a configuration that it takes, and no two edges have the same', async () => {
    const [one, other] = [await newSecrets(), await newSecrets()];
    const { root, grant, receipt } = await configured(one.secrets);
    expect(new Set([root.keyId, grant.keyId, receipt.keyId]).size).toBe(3);
    const values = [...Object.values(one.secrets), ...Object.values(other.secrets)];
    expect(new Set(values).size).toBe(values.length);
  });
});

describe('a key that gives way to another', () => {
  test('for grants is in the next key set until its grants are over, and hosts take that set', async () => {
    const { secrets } = await newSecrets();
    const before = await configured(secrets);
    const rotated = await rotate(secrets, 'grant', NOW_S);
    const after = await configured(rotated.secrets, {
      KEY_SET_VERSION: '2',
      FORMER_KEYS: JSON.stringify({ grant: [rotated.former] }),
    });
    expect(after.grant.keyId).not.toBe(before.grant.keyId);
    expect(after.root.keyId).toBe(before.root.keyId);
    // What a host has pinned is the root key, and it has seen version 1.
    const pinned = await importPublicKey(before.root.publicJwk);
    if (pinned === undefined) throw new Error('no root key');
    const taken = await verifyKeySet(after.signedKeySet, pinned.key, 1);
    if (!taken.ok) throw new Error(taken.detail);
    const soon = await liveKeys(taken.value.grant_keys, NOW_S + 60);
    expect([...soon.keys()].toSorted()).toEqual([before.grant.keyId, after.grant.keyId].toSorted());
    const later = await liveKeys(taken.value.grant_keys, NOW_S + 2 * 86_400);
    expect([...later.keys()]).toEqual([after.grant.keyId]);
    expect(await verifyKeySet(before.signedKeySet, pinned.key, 2)).toMatchObject({
      ok: false,
      code: 'key_set_rollback',
    });
  });

  test('leaves no set with the version of the last one in which it is as good as before', async () => {
    const { secrets } = await newSecrets();
    const rotated = await rotate(secrets, 'grant', NOW_S);
    const FORMER_KEYS = JSON.stringify({ grant: [{ ...rotated.former, revoked_at: NOW_S }] });
    // The steps of docs/deploy.md, one after the other.
    const before = [
      await configured(secrets),
      await configured(secrets, { FORMER_KEYS }),
      await configured(rotated.secrets, { FORMER_KEYS }),
    ];
    const last = await configured(rotated.secrets, { FORMER_KEYS, KEY_SET_VERSION: '2' });
    const pinned = await importPublicKey(last.root.publicJwk);
    if (pinned === undefined) throw new Error('no root key');
    expect((await verifyKeySet(last.signedKeySet, pinned.key, 2)).ok).toBe(true);
    for (const { signedKeySet } of before) {
      expect(await verifyKeySet(signedKeySet, pinned.key, 2)).toMatchObject({ code: 'key_set_rollback' });
    }
  });

  test('for receipts verifies what it has signed for as long as it is named', async () => {
    const { secrets } = await newSecrets();
    const before = await configured(secrets);
    const rotated = await rotate(secrets, 'receipt', NOW_S);
    const after = await configured(rotated.secrets, {
      KEY_SET_VERSION: '2',
      FORMER_KEYS: JSON.stringify({ receipt: [rotated.former] }),
    });
    const named = after.keySet.receipt_keys.find(({ kid }) => kid === before.receipt.keyId);
    expect(named !== undefined && isLiveAt(named, NOW_S + 10 * 365 * 86_400)).toBe(true);
  });

  test('may be named before the other one is there: until then it is the one that signs', async () => {
    const { secrets } = await newSecrets();
    const rotated = await rotate(secrets, 'grant', NOW_S);
    const FORMER_KEYS = JSON.stringify({ grant: [rotated.former] });
    const { keySet, grant } = await configured(secrets, { KEY_SET_VERSION: '2', FORMER_KEYS });
    expect(keySet.grant_keys).toMatchObject([{ kid: grant.keyId, not_after: null }]);
  });

  test('because it was stolen verifies nothing from then on', async () => {
    const { secrets } = await newSecrets();
    const rotated = await rotate(secrets, 'grant', NOW_S);
    const revoked = { ...rotated.former, revoked_at: NOW_S };
    const { keySet } = await configured(rotated.secrets, {
      KEY_SET_VERSION: '2',
      FORMER_KEYS: JSON.stringify({ grant: [revoked] }),
    });
    expect([...(await liveKeys(keySet.grant_keys, NOW_S + 1)).keys()]).not.toContain(revoked.kid);
  });

  test.each<[string, (secrets: Secrets) => Promise<object>]>([
    [
      'one that is there twice',
      async (secrets) => {
        const { former } = await rotate(secrets, 'grant', NOW_S);
        return { grant: [former], receipt: [former] };
      },
    ],
    [
      'one under the id of another',
      async (secrets) => {
        const other = await newSecrets();
        const { former } = await rotate(other.secrets, 'grant', NOW_S);
        return { grant: [{ ...former, kid: (await rotate(secrets, 'grant', NOW_S)).former.kid }] };
      },
    ],
    ['something else', async () => ({ grants: [] })],
  ])('is not %s', async (_name, formerOf) => {
    const { secrets } = await newSecrets();
    const former = JSON.stringify(await formerOf(secrets));
    await expect(configured(secrets, { FORMER_KEYS: former })).rejects.toThrow(/FORMER_KEYS/);
  });
});
