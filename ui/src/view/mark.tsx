/** The mark of the product: somebody says something, and it is checked. */

export function Mark() {
  return (
    <svg class="mark-of-teal" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="9" fill="#0d7168" />
      <path
        d="M9 8.5h14a3 3 0 0 1 3 3v7a3 3 0 0 1-3 3h-7.5L10 26v-4.5H9a3 3 0 0 1-3-3v-7a3 3 0 0 1 3-3z"
        fill="#fff"
      />
      <path
        d="M11.5 15.2l3.1 3 6-6.2"
        fill="none"
        stroke="#0d7168"
        stroke-width="2.4"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}
