// d3-flame-graph comes without types; this is what the page uses of it.
declare module "d3-flame-graph" {
  import type { Selection } from "d3-selection";

  /** A node of d3-hierarchy around the datum; x0 and x1 are shares of the width. */
  export interface FlameNode<T> {
    data: T;
    value: number;
    depth: number;
    parent: FlameNode<T> | null;
    children?: FlameNode<T>[];
    x0: number;
    x1: number;
  }
  export interface Tooltip<T> {
    (): void;
    show(event: MouseEvent, node: FlameNode<T>): void;
    hide(): void;
  }
  export interface FlameGraph<T> {
    (selection: Selection<any, T, any, any>): void;
    width(px: number): this;
    cellHeight(px: number): this;
    minFrameSize(px: number): this;
    inverted(on: boolean): this;
    sort(on: boolean): this;
    resetHeightOnZoom(on: boolean): this;
    transitionDuration(ms: number): this;
    tooltip(tooltip: Tooltip<T>): this;
    setLabelHandler(label: (node: FlameNode<T>) => string): this;
    setColorMapper(color: (node: FlameNode<T>, original: string) => string): this;
    onClick(handler: (node: FlameNode<T>) => void): this;
    zoomTo(node: FlameNode<T>): void;
    resetZoom(): void;
    update(data?: T): this;
  }
  export default function flamegraph<T>(): FlameGraph<T>;
}
