/** Columns that tables of former versions do not have. */
export function ensureColumn(
  sql: SqlStorage,
  table: string,
  { name, type }: { name: string; type: string },
): void {
  const columns = sql.exec(`SELECT name FROM pragma_table_info('${table}')`).toArray();
  if (columns.some((column) => column.name === name)) return;
  sql.exec(`ALTER TABLE ${table} ADD COLUMN ${name} ${type}`);
}
