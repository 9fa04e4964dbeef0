/** A webhook as the API shows it. Pure. */
import type { Webhook } from '../../../shared/webhook.ts';
import type { WebhookRow } from './store.ts';

export function webhookView(row: WebhookRow, waiting: number, nowMs: number): Webhook {
  const { isEnabled, isFailing, errorAtMs, formerUntilMs, successAtMs } = row;
  const isSigning = formerUntilMs !== null && formerUntilMs > nowMs;
  return {
    webhook_id: row.webhookId,
    url: row.url,
    events: row.events,
    labels: row.labels,
    description: row.description,
    enabled: isEnabled,
    status: isEnabled ? (isFailing ? 'failing' : 'active') : 'disabled',
    last_error:
      errorAtMs === null
        ? null
        : { at: timeOf(errorAtMs), message: row.errorMessage ?? '', status_code: row.errorStatus },
    last_success_at: successAtMs === null ? null : timeOf(successAtMs),
    waiting,
    former_secret_until: isSigning ? timeOf(formerUntilMs) : null,
    created_at: timeOf(row.createdAtMs),
    updated_at: timeOf(row.updatedAtMs),
  };
}

function timeOf(ms: number): string {
  return new Date(ms).toISOString();
}
