/** A source as it is kept: what may be shown, and its secrets under their seal. */
import { networkView } from '../../shared/network.ts';
import { NEW_SOURCE_STATE, type RegisterSource, type ToolSource } from '../../shared/tool-source.ts';
import type { Configuration } from '../configuration.ts';
import type { PutSource, StoredSource } from '../objects/catalogue/port.ts';
import { openSecrets, sealSecrets } from '../secrets/sealed-secrets.ts';
import { newWebhookSecret } from '../webhooks/signature.ts';
import { CLIENT_SECRET, named, secretsHolder, secretsOf, WEBHOOK_SECRET } from './secrets.ts';
import { webhookHandle } from './webhook.ts';

export const WEBHOOK_PATH = '/v1/tool_source_webhooks';

export interface OpenedSource {
  source: ToolSource;
  secrets: Record<string, string>;
}

export async function openedSource(
  { source, secrets }: StoredSource,
  { secretsKey }: Configuration,
  tenant: string,
): Promise<OpenedSource> {
  const owner = { tenant, holder: secretsHolder(source.name) };
  return { source, secrets: secrets === null ? {} : await openSecrets(secretsKey, owner, secrets) };
}

export interface PutContext {
  configuration: Configuration;
  tenant: string;
  rights: string[];
  known: OpenedSource | undefined;
}

/** `webhookSecret` where it is new: it is said once. */
export async function putSourceOf(
  given: RegisterSource,
  context: PutContext,
): Promise<{ put: Omit<PutSource, 'mode'>; webhookSecret: string | undefined }> {
  const { configuration, tenant, rights, known } = context;
  const { secrets, webhookSecret } = secretsFor(given, known?.secrets ?? {});
  const owner = { tenant, holder: secretsHolder(given.name) };
  const hasSecrets = Object.keys(secrets).length > 0;
  return {
    put: {
      source: await shownOf(given, secrets, context),
      rights,
      secrets: hasSecrets ? await sealSecrets(configuration.secretsKey, owner, secrets) : null,
    },
    webhookSecret,
  };
}

/** What is not given again stays; that it may was checked. */
function secretsFor(given: RegisterSource, before: Record<string, string>) {
  if (given.kind === 'mcp_stdio') {
    const injected = given.network?.inject.map(({ secret }, n) => [String(n), secret]) ?? [];
    const secrets = {
      ...named('environment', given.env ?? secretsOf(before, 'environment')),
      ...named('inject', Object.fromEntries(injected)),
    };
    return { secrets, webhookSecret: undefined };
  }
  const secrets = named('header', given.credentials ?? secretsOf(before, 'header'));
  let webhookSecret: string | undefined;
  if (given.kind === 'manifest' && given.webhook) {
    if (before[WEBHOOK_SECRET] === undefined) webhookSecret = newWebhookSecret();
    secrets[WEBHOOK_SECRET] = webhookSecret ?? before[WEBHOOK_SECRET] ?? '';
  }
  const clientSecret =
    given.kind === 'mcp_http' && given.oauth !== undefined
      ? (given.oauth.client_secret ?? before[CLIENT_SECRET])
      : undefined;
  if (clientSecret !== undefined) secrets[CLIENT_SECRET] = clientSecret;
  return { secrets, webhookSecret };
}

async function shownOf(
  given: RegisterSource,
  secrets: Record<string, string>,
  { configuration, tenant }: PutContext,
): Promise<ToolSource> {
  const nowText = new Date().toISOString();
  const shown = {
    ...NEW_SOURCE_STATE,
    credential_names: Object.keys(secretsOf(secrets, 'header')),
    created_at: nowText,
    updated_at: nowText,
  };
  if (given.kind === 'mcp_stdio') {
    const { env: _, network, ...open } = given;
    const env_names = Object.keys(secretsOf(secrets, 'environment'));
    return { ...open, ...shown, network: network === null ? null : networkView(network), env_names };
  }
  const { credentials: _, ...open } = given;
  if (open.kind === 'manifest') {
    const handle = open.webhook ? await webhookHandle(configuration.tagKey, tenant, open.name) : null;
    const webhook_url = handle === null ? null : `${configuration.origin}${WEBHOOK_PATH}/${handle}`;
    return { ...open, ...shown, webhook_url };
  }
  const { oauth, ...rest } = open;
  if (oauth === undefined) return { ...rest, ...shown };
  const { client_secret: __, ...openOauth } = oauth;
  return { ...rest, oauth: openOauth, ...shown };
}
