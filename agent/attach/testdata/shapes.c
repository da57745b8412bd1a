// Functions whose first instructions have the shapes that probe placement has to tell apart. Each takes six integers and
// returns their sum, so that a test sees whether a probe disturbed them. Written in assembly: a compiler promises no shape.
long body(long a, long b, long c, long d, long e, long f) { return a + b + c + d + e + f; }

#define FUNCTION(name, code)                                                                                     \
	asm(".text; .globl " #name "; .type " #name ", @function; .p2align 5\n" #name ":\n" code "\n.size " #name ", .-" #name "\n")

asm(".data; .globl guard; .type guard, @object; .size guard, 4; .p2align 3\nguard: .long 0; .long 0\n"
    ".globl slot; .type slot, @object; .size slot, 8\nslot: .quad body\nscratch: .quad 0\n");

// libcuda 535 and 550: cmpl, je, jmp through a table, 30 bytes; the guard has this value once the driver is torn down.
FUNCTION(stub, "cmpl $0x321cba00, guard(%rip); je 1f; jmp *slot(%rip); nopw 0(%rax,%rax,1); 1: mov $4, %eax; ret");
asm(".globl stub_alias; .set stub_alias, stub; .type stub_alias, @function; .size stub_alias, 30\n");
// libamdhip64: endbr64 and a jump through a table
FUNCTION(endbr_jump, "endbr64; jmp *slot(%rip)");
FUNCTION(endbr_push, "endbr64; push %rbp; mov %rsp, %rbp; call *slot(%rip); pop %rbp; ret");
FUNCTION(push_first, "push %rbx; call *slot(%rip); pop %rbx; ret");
FUNCTION(push_r12, "push %r12; call *slot(%rip); pop %r12; ret");
FUNCTION(thunk, "jmp push_first_local");
asm(".set push_first_local, push_first\n");
FUNCTION(nop5_only, ".byte 0x0f,0x1f,0x44,0,0; jmp *slot(%rip)");
FUNCTION(nop5_push, ".byte 0x0f,0x1f,0x44,0,0; push %rbx; call *slot(%rip); pop %rbx; ret");
FUNCTION(load_scratch, "mov guard(%rip), %eax; test %eax, %eax; jne 1f; jmp *slot(%rip); 1: mov $4, %eax; ret");
FUNCTION(lea_argument, "mov %rdi, %rax; lea guard(%rip), %rdi; push %rbx; mov %rax, %rdi; call *slot(%rip); pop %rbx; ret");
FUNCTION(sub_stack, "sub $8, %rsp; nop; call *slot(%rip); add $8, %rsp; ret");
FUNCTION(store_first, "mov %rdi, scratch(%rip); push %rbx; call *slot(%rip); pop %rbx; ret");
FUNCTION(callee_saved, "xchg %rbx, %rax; nop; xchg %rbx, %rax; jmp *slot(%rip)");
// The conditional jump is the head of a loop that runs three times: a probe there would count one call as three.
FUNCTION(loop_head, "mov $3, %eax; 1: je 2f; dec %eax; jmp 1b; 2: jmp *slot(%rip)");

static void *resolve(void) { return body; }
void indirect(void) __attribute__((ifunc("resolve")));

extern long imported(long);
long uses_import(long a) { return imported(a); }
