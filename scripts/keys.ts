/**
 * `npm run keys -- FILE` makes the secrets of a new edge, as `wrangler secret bulk FILE` takes them. `npm run keys -- --rotate grant
 * OLD NEW` makes a new key of one kind, and says what the former one has to be named as.
 */
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { runMain, SetupFailure } from '../host-agent/setup/failure.ts';
import { writePrivateFile } from './development/private-file.ts';
import { newSecrets, rotate, type Secrets, SecretsSchema } from './production-secrets.ts';

const USAGE = 'npm run keys -- FILE, or npm run keys -- --rotate grant|receipt OLD_FILE NEW_FILE';

await runMain(async () => {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { rotate: { type: 'string' } },
  });
  const [first, second] = positionals;
  if (first === undefined) throw new SetupFailure(USAGE);
  if (values.rotate === undefined) {
    const { secrets, operatorToken } = await newSecrets();
    await writePrivateFile(first, `${JSON.stringify(secrets, null, 2)}\n`);
    console.log(
      `The secrets are in ${first}: give them to wrangler, keep a copy where keys are kept, remove the file.`,
    );
    console.log(`The operator's token, which is nowhere else:\n  ${operatorToken}`);
    return 0;
  }
  const kind = values.rotate;
  if ((kind !== 'grant' && kind !== 'receipt') || second === undefined) throw new SetupFailure(USAGE);
  const rotated = await rotate(await secretsIn(first), kind, Math.floor(Date.now() / 1_000));
  await writePrivateFile(second, `${JSON.stringify(rotated.secrets, null, 2)}\n`);
  console.log(`The new secrets are in ${second}. Add to ${kind} in FORMER_KEYS, and raise KEY_SET_VERSION:`);
  console.log(`  ${JSON.stringify(rotated.former)}`);
  return 0;
});

async function secretsIn(file: string): Promise<Secrets> {
  const text = await readFile(file, 'utf8').catch(() => undefined);
  if (text === undefined) throw new SetupFailure(`${file} cannot be read`);
  const parsed = SecretsSchema.safeParse(jsonOf(text));
  if (!parsed.success) throw new SetupFailure(`${file} does not have the secrets of an edge`);
  return parsed.data;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
