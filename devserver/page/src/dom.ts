type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | ((event: any) => void)>;

/** Makes an element. A function becomes the listener of the event its name says, true an empty attribute; false and null set nothing. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child): child is Node | string => !!child));
  return element;
}

/** The element that index.html has under this id. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no element ${id}`);
  return element as T;
}

/** A select with a label that screen readers read. An option's disabled text stands for "nothing chosen". */
export function select(
  label: string,
  options: { value: string; text: string }[],
  value: string,
  change: (value: string) => void,
  attributes: Attributes = {},
): HTMLSelectElement {
  const element = h(
    "select",
    { "aria-label": label, change: () => change(element.value), ...attributes },
    ...options.map((option) => h("option", { value: option.value, selected: option.value === value }, option.text)),
  );
  return element;
}

/** Replaces the children of an element and keeps the keyboard's place: the focus returns to what has the same data-key. */
export function replace(parent: HTMLElement, ...children: Child[]): void {
  const active = document.activeElement;
  const key = active instanceof HTMLElement && parent.contains(active) ? active.dataset.key : undefined;
  parent.replaceChildren(...children.filter((child): child is Node | string => !!child));
  if (key !== undefined) parent.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`)?.focus();
}
