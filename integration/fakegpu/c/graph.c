/* Memory of graph nodes: a node fixes the address when it is added, the device's memory is taken when the graph is first
 * launched, and the device keeps it for graphs until it is trimmed. */
#include "fakegpu.h"

/* CUDA_MEM_ALLOC_NODE_PARAMS (cuda.h): the pool's properties, who may reach it, the size, and the address on return. */
struct node { unsigned char properties[88]; u64 access, n_access, size, address; };
enum { MEM_ALLOC = 10, MEM_FREE = 11 };

static int add_node(struct call *c, struct node *n)
{
	struct object *g = find(K_GRAPH, c->a[1]), *o;
	int result = ask(c, GRAPH, n->size);
	struct object *context = result ? 0 : current(&result);

	if (result)
		return result;
	if (!g)
		return INVALID_VALUE;
	g->used += n->size;
	o = add(K_DEVICE, new_address(n->size), n->size);
	o->device = g->device = context->device;
	o->context = context;
	o->backing = g;
	n->address = o->key;
	*(u64 *)c->a[0] = new_handle();
	return gave(c, o);
}

int graph_alloc_node(struct call *c) { return add_node(c, (void *)c->a[4]); }

int graph_free_node(struct call *c)
{
	struct object *o = find(K_DEVICE, c->a[4]);

	if (!find(K_GRAPH, c->a[1]) || !o || o->class != GRAPH)
		return INVALID_VALUE;
	*(u64 *)c->a[0] = new_handle();
	return SUCCESS;
}

/* CUgraphNodeParams: the type, 12 bytes, and the parameters of that type. */
int graph_add_node(struct call *c)
{
	u32 *parameters = (u32 *)c->a[4];

	if (*parameters != MEM_ALLOC)
		return NOT_SUPPORTED;
	return add_node(c, (void *)(parameters + 4));
}

int graph_create(struct call *c)
{
	*(u64 *)c->a[0] = c->pointer = add(K_GRAPH, new_handle(), 0)->key;
	return SUCCESS;
}

int graph_instantiate(struct call *c)
{
	struct object *g = find(K_GRAPH, c->a[1]), *e;

	if (!g)
		return INVALID_VALUE;
	e = add(K_GRAPH_EXEC, new_handle(), 0);
	e->used = g->used;
	e->device = g->device;
	*(u64 *)c->a[0] = c->pointer = e->key;
	return SUCCESS;
}

int graph_launch(struct call *c)
{
	struct object *e = find(K_GRAPH_EXEC, c->a[0]);
	struct device *d;
	int result;

	if (!e)
		return INVALID_VALUE;
	d = &devices[e->device];
	if (e->used <= d->graph_reserved)
		return SUCCESS;
	result = charge(e->device, e->used - d->graph_reserved);
	if (!result)
		d->graph_reserved = e->used;
	return result;
}

static int destroy(enum kind kind, u64 key)
{
	struct object *o = find(kind, key);

	if (!o)
		return INVALID_VALUE;
	old_handle(key);
	drop(o);
	return SUCCESS;
}

static void end_node(struct object *o, void *graph)
{
	if (o->class != GRAPH || o->backing != graph)
		return;
	old_address(o->key, o->size);
	end(o);
}

int graph_exec_destroy(struct call *c) { return destroy(K_GRAPH_EXEC, c->a[0]); }

int graph_destroy(struct call *c)
{
	each(end_node, find(K_GRAPH, c->a[0]));
	return destroy(K_GRAPH, c->a[0]);
}

int graph_trim(struct call *c)
{
	int device = (int)c->a[0];

	if (device < 0 || device >= n_devices)
		return INVALID_DEVICE;
	refund(device, devices[device].graph_reserved);
	devices[device].graph_reserved = 0;
	return SUCCESS;
}
